"""Blocks that have a state only where a step of a prefill ends with one: vLLM's of recurrent layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_ids import HYBRID, array, common, turn
from tplaudit.probes.caches.base import PromptBoundaries
from tplaudit.probes.caches.paged import PagedCache
from tplaudit.probes.caches.registry import make_cache
from tplaudit.probes.models.sizes import Sizes


def stepped(size, step, **options):
    return PagedCache(size, trimmable=False, full_hit="drop-block", step=step, **options)


class Reference:
    """The rule once more: prompts with the positions of their states, token by token."""

    def __init__(self, size, step):
        self.size, self.step, self.states, self.stored = size, step, set(), []

    def turn(self, prompt, reply):
        limit = len(prompt) - 1
        at = max(
            (
                len(state)
                for state in self.states
                if list(state) == prompt[: len(state)] and len(state) <= limit
            ),
            default=0,
        )
        reused, whole = at, [*prompt, *reply]
        shared = max((common(whole, other) // self.size * self.size for other in self.stored), default=0)
        last = (len(prompt) - 1) // self.size * self.size
        while at < len(prompt):
            end = at
            while end < len(prompt) and end - at < self.step:
                end += 1
                if end in (last, shared) or (at % self.size and end % self.size == 0):
                    break
            else:
                if end < len(prompt) and end // self.size * self.size > at:
                    end = end // self.size * self.size
            at = end
            if at % self.size == 0:
                self.states.add(tuple(whole[:at]))
        self.states |= {
            tuple(whole[:at]) for at in range(len(prompt) + 1, len(whole) + 1) if at % self.size == 0
        }
        self.stored.append(whole)
        return reused


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.integers(0, 6)),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_states_are_where_steps_end_with_a_block(turns, size, step):
    cache, reference = stepped(size, step), Reference(size, step)
    for prompt, reply in turns:
        match = cache.match(array(prompt))
        assert match.reused == reference.turn(prompt, [1] * reply)
        marks = PromptBoundaries(prompt_tokens=len(prompt))
        cache.store(array([*prompt, *[1] * reply]), match=match, marks=marks)


def test_nothing_is_given_back_below_one_block_and_only_at_step_ends():
    cache = make_cache("vllm", model_kind="hybrid", aligned_block=528)
    assert cache.block_size == 528
    turn(cache, range(500))
    assert cache.match(array(range(520))).reused == 0
    turn(cache, range(6000))
    # Steps of 2,048 end at 3 blocks each; the last block that the prompt fills ends at 5,808.
    reused = [cache.match(array([*range(at), -1, -2])).reused for at in (1500, 1584, 3000, 3168, 5800, 5990)]
    assert reused == [0, 1584, 1584, 3168, 4752, 5808]
    assert [cache.reusable(at, 9000) for at in (1500, 3168, 5990)] == [0, 3168, 5808]
    assert "528" in cache.why_not(1500, 3000)
    assert make_cache("vllm:16", model_kind="hybrid").block_size == 528
    assert make_cache("vllm:256", model_kind="hybrid", aligned_block=528).block_size == 768
    large = make_cache("vllm", model_kind="hybrid", aligned_block=528, options={"step": "8192"})
    turn(large, range(6000))
    assert large.match(array([*range(5000), -1])).reused == 0


def test_a_prompt_that_parts_from_stored_blocks_leaves_a_state_there():
    cache = stepped(10, 1000)
    turn(cache, range(100))
    assert turn(cache, [*range(50), *range(-50, 0)]) == 0
    assert turn(cache, [*range(50), *range(-150, -100)]) == 50


def test_a_state_that_is_added_to_a_block_counts_once():
    cache = stepped(10, 1000, capacity_bytes=2000, sizes=Sizes(1, recurrent_bytes=100))
    turn(cache, range(100))
    before = cache.statistics
    turn(cache, [*range(50), *range(-50, 0)])
    assert cache.statistics.bytes == sum(block.nbytes for block in cache._blocks.values())
    assert cache.statistics.blocks == len(cache) and before.bytes == 100 + 2 * 100
    assert cache._blocks[cache.match(array(range(60))).blocks[-1].name].snapshot


def test_steps_need_layers_that_cannot_be_trimmed():
    with pytest.raises(ValueError, match="steps count only"):
        PagedCache(16, step=2048)
    assert not HYBRID.trimmable
