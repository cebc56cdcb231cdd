"""llama.cpp's slots and their checkpoints."""

from hypothesis import given
from hypothesis import strategies as st
from token_ids import HYBRID, array, common, conversations, turn
from tplaudit.probes.caches.base import Match, PromptBoundaries
from tplaudit.probes.caches.servers.llama_cpp import LlamaCppCache


class Server:
    """The rule of slots once more, on lists."""

    def __init__(self, slots, pooled):
        self.slots, self.used, self.aside, self.pooled = [[]] * slots, [-1] * slots, [], pooled

    def request(self, tokens):
        best, kept = None, len(tokens) / 10
        for at, slot in enumerate(self.slots):
            if common(slot, tokens) > kept:
                best, kept = at, common(slot, tokens)
        at = best
        if at is None:
            for each, used in enumerate(self.used):
                if at is None or used <= self.used[at]:
                    at = each
        if best is None or kept / len(self.slots[at]) < 0.5:
            self.save(self.slots[at])
            self.load(at, tokens)
        self.used[at] = max(self.used) + 1
        reused = min(common(self.slots[at], tokens), len(tokens) - 1)
        for other in range(len(self.slots)):
            if other != at:
                self.save(self.slots[other])
                if self.pooled:
                    self.slots[other] = []
        self.slots[at] = tokens
        return reused

    def save(self, slot):
        if slot and not any(other[: len(slot)] == slot for other in self.aside):
            self.aside = [other for other in self.aside if slot[: len(other)] != other] + [slot]

    def load(self, at, tokens):
        slot, best = self.slots[at], None
        most = common(slot, tokens)
        share = most / len(slot) if slot else -1
        for other in self.aside:
            shared = common(other, tokens)
            if shared / len(other) >= 0.25 and shared / len(other) > share and shared > most:
                best, share, most = other, shared / len(other), shared
        if best is not None:
            self.aside.remove(best)
            self.slots[at] = best


@given(conversations, st.sampled_from([1, 2, 3, 4]), st.booleans())
def test_prompts_go_to_the_slot_that_holds_most_of_them_or_the_oldest(prompts, slots, pooled):
    cache, server = LlamaCppCache(slots=slots, pooled=pooled), Server(slots, pooled)
    for tokens in prompts:
        assert cache.probe(array(tokens)) == server_probe(server, tokens)
        assert turn(cache, tokens) == server.request(tokens)
        assert cache.statistics.blocks == len([slot for slot in server.slots if slot]) + len(server.aside)


def server_probe(server, tokens):
    other = Server(1, server.pooled)
    other.slots, other.used, other.aside = list(server.slots), list(server.used), list(server.aside)
    return other.request(tokens)


def test_four_slots_are_the_default_and_only_they_are_emptied():
    assert len(LlamaCppCache()._slots) == 4
    for slots, held in ((2, 2), (4, 1)):
        cache = LlamaCppCache(slots=slots)
        turn(cache, range(100))
        turn(cache, range(500, 600))
        assert sum(slot is not None for slot in cache._slots) == held


def test_a_prompt_that_shares_no_more_than_a_tenth_goes_to_another_slot():
    reused = {}
    for slots in (1, 4):
        reused[slots] = []
        for kept in (100, 101):
            cache = LlamaCppCache(slots=slots)
            turn(cache, range(1000))
            reused[slots].append(turn(cache, [*range(kept), *range(-1000, -kept)]))
        assert bool(cache.why_not(100, 1000)) is (slots == 4)
        assert cache.why_not(101, 1000) == ""
    assert reused == {1: [100, 101], 4: [0, 101]}


def test_what_another_request_took_is_told():
    cache = LlamaCppCache()
    turn(cache, range(1000))
    turn(cache, range(5000, 6000))
    # Put aside, it does not come back: less than a quarter of it would be kept.
    match = cache.match(array([*range(200), *range(-800, 0)]))
    assert (match.reused, match.evicted) == (0, 2)


def test_a_prompt_put_aside_comes_back():
    cache = LlamaCppCache()
    turn(cache, range(100))
    turn(cache, range(500, 510))
    assert turn(cache, range(120)) == 100
    assert turn(cache, range(500, 520)) == 10


class Slot:
    """The rule of checkpoints once more, token by token."""

    def __init__(self, batch, micro_batch, min_step, most):
        self.batch, self.micro_batch, self.min_step, self.most = batch, micro_batch, min_step, most
        self.tokens, self.checkpoints, self.task = [], [], 0

    def reuse(self, prompt):
        shared = common(self.tokens, prompt)
        if shared == len(self.tokens) < len(prompt):
            return shared
        fitting = [at for at, _ in self.checkpoints if at <= shared and at < len(prompt)]
        return fitting[-1] if fitting else 0

    def run(self, prompt, headers, reply):
        self.task += 1
        done = self.reuse(prompt)
        self.checkpoints = [each for each in self.checkpoints if each[0] <= done]
        reused = done
        while done < len(prompt):
            start, before = done, list(self.checkpoints)
            while done < len(prompt) and done - start < self.batch:
                done += 1
                left = len(prompt) - done
                if self.admits(done, headers, before) or left in (
                    min(self.batch, 4 + self.micro_batch),
                    min(self.batch, 4),
                ):
                    break
            near = len(prompt) < done + self.micro_batch
            if start and (near or self.admits(start, headers, before)):
                self.keep(start)
        self.tokens = [*prompt, *reply]
        return reused

    def admits(self, at, headers, checkpoints):
        return at in headers and (
            at == headers[-1] or not checkpoints or at > checkpoints[-1][0] + self.min_step
        )

    def keep(self, start):
        left = []
        for number, (at, task) in enumerate(self.checkpoints):
            full = len(left) + len(self.checkpoints) - number + 1 >= self.most
            if full and task != self.task and left and at <= left[-1][0] + self.min_step:
                continue
            left.append((at, task))
        left = left[max(0, len(left) - self.most + 1) :]
        self.checkpoints = [*(each for each in left if each[0] != start), (start, self.task)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.integers(1, 60),
            st.integers(0, 6),
            st.sets(st.integers(1, 110), max_size=6),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(5, 40),
    st.integers(1, 20),
    st.integers(0, 30),
    st.integers(2, 6),
)
def test_checkpoints_are_those_of_a_token_by_token_prefill(turns, batch, micro_batch, min_step, most):
    cache, slot = LlamaCppCache(HYBRID, slots=1), Slot(batch, micro_batch, min_step, most)
    cache.batch, cache.micro_batch, cache.min_step, cache.max_checkpoints = batch, micro_batch, min_step, most
    cache._put_aside = lambda entry: None
    for number, (kept, new, reply, starts) in enumerate(turns):
        prompt = [*slot.tokens[:kept], *(100 * number + at for at in range(new))]
        headers = tuple(sorted(at for at in starts if at < len(prompt)))
        written = [-100 * number - 1 - at for at in range(reply)]
        match = cache.match(array(prompt))
        assert match.reused == slot.run(prompt, headers, written)
        marks = PromptBoundaries(prompt_tokens=len(prompt), user_headers=headers)
        cache.store(array([*prompt, *written]), match=match, marks=marks)
        assert list(cache._slot.checkpoints[:-1]) == [at for at, _ in slot.checkpoints]


def test_checkpoints():
    cache = LlamaCppCache(HYBRID)
    cache.micro_batch = 20
    cache.min_step = 30
    marks = PromptBoundaries(prompt_tokens=100, user_headers=(10, 25, 41, 60))
    spans = cache.spans(array(range(110)), Match(0), marks)
    assert [span.end for span in spans] == [10, 41, 60, 76, 96, 110]
    turn(cache, range(110), marks)
    assert cache.reusable(95, 200) == 76
    assert turn(cache, range(130), PromptBoundaries(user_headers=(115,))) == 110
    # A batch that ends near the prompt's end leaves one at its own beginning, the slot's old end.
    assert turn(cache, [*range(112), 999, 998]) == 110
    assert turn(cache, [*range(9), 999, 998]) == 0


def test_the_old_end_is_no_checkpoint_behind_a_long_continuation():
    cache = LlamaCppCache(HYBRID)
    cache.micro_batch = 20
    turn(cache, range(100))
    turn(cache, range(150))
    assert cache.match(array([*range(105), 999])).reused == 96


def test_a_long_first_prompt_has_checkpoints_at_user_turns_far_apart():
    cache = LlamaCppCache(HYBRID)
    headers = tuple(range(500, 30_000, 500))
    turn(cache, range(30_000), PromptBoundaries(user_headers=headers))
    reused = [cache.match(array([*range(at), -1])).reused for at in (20_000, 26_000, 29_600, 29_990, 29_999)]
    # 500, then the next one more than 8,192 behind it, and so on; the last one; 516 and 4 before the end.
    assert reused == [17_500, 26_000, 29_500, 29_500, 29_996]


def test_checkpoints_are_limited_and_those_behind_the_prompt_go():
    cache = LlamaCppCache(HYBRID)
    cache.max_checkpoints = 2
    cache.micro_batch = 20
    turn(cache, range(100), PromptBoundaries(user_headers=(50,)))
    assert cache.match(array([*range(76), 999])).reused == 76
    assert cache.match(array([*range(75), 999])).reused == 0
