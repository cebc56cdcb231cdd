"""SGLang's tree, compared with a brute-force statement of its rule."""

from hypothesis import given
from token_ids import HYBRID, array, common, conversations, turn
from tplaudit.probes.caches.base import PromptBoundaries
from tplaudit.probes.caches.servers.sglang import SglangCache
from tplaudit.probes.models.sizes import Sizes


@given(conversations)
def test_sglang_shares_every_token(prompts):
    cache = SglangCache(sizes=Sizes(1))
    for number, tokens in enumerate(prompts):
        shared = max((common(tokens, other) for other in prompts[:number]), default=0)
        assert turn(cache, tokens) == min(shared, len(tokens) - 1) == cache.reusable(shared, len(tokens))
        # Every distinct beginning is one node of the tree.
        nodes = {tuple(other[:end]) for other in prompts[: number + 1] for end in range(1, len(other) + 1)}
        assert cache.statistics.bytes == len(nodes)


def test_sglang_goes_on_from_where_a_prompt_or_its_reply_ended():
    cache = SglangCache(HYBRID)
    turn(cache, range(24), PromptBoundaries(prompt_tokens=20))
    reused = {at: cache.match(array([*range(at), 99])).reused for at in (19, 20, 23, 24)}
    assert reused == {19: 0, 20: 20, 23: 20, 24: 24}
    turn(cache, range(40), PromptBoundaries(prompt_tokens=36))
    assert cache.match(array([*range(24), 99])).reused == 24


def test_a_branch_gives_way_up_to_where_another_one_shares_it():
    cache = SglangCache(capacity_bytes=8, sizes=Sizes(1))
    turn(cache, [1, 2, 3, 4])
    turn(cache, [1, 2, 5, 6])
    turn(cache, [7, 8, 9])
    assert cache.statistics.bytes == 7
    assert cache.match(array([1, 2, 3, 4, 0])).reused == 2
