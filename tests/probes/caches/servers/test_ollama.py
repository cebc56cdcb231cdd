"""The tree of Ollama's MLX runner."""

from token_ids import HYBRID, array, turn
from tplaudit.probes.caches.base import Match, PromptBoundaries
from tplaudit.probes.caches.servers.ollama import OllamaCache
from tplaudit.probes.tokenization.token_range import TokenRange


def test_ollamas_snapshots():
    cache = OllamaCache(HYBRID)
    cache.stride = 8
    ids = array(range(24))
    marks = PromptBoundaries(prompt_tokens=22)
    spans = cache.spans(ids, Match(0), marks)
    assert spans == tuple(TokenRange(*ends, True) for ends in [(0, 8), (8, 16), (16, 18), (18, 24)])
    turn(cache, range(24), marks)
    reused = {at: cache.match(array([*range(at), 99, 98])).reused for at in (7, 8, 17, 18, 23, 24)}
    assert reused == {7: 0, 8: 8, 17: 16, 18: 18, 23: 18, 24: 24}
    # Continued, the old end is no place to go back to, but a parting leaves a snapshot there.
    turn(cache, range(40))
    assert cache.match(array([*range(24), 99])).reused == 24
    assert cache.match(array([*range(25), 99])).reused == 24
    assert turn(cache, [*range(27), 99]) == 24
    assert cache.match(array([*range(27), 98])).reused == 27


def test_issue_18267():
    """ollama/ollama#18267: where one identifier of 65,303 tokens differs, a multiple of 8192 is reused."""
    cache = OllamaCache(HYBRID)
    turn(cache, range(65303))
    assert turn(cache, [*range(50000), *range(100000, 115303)]) == 49152
    assert turn(cache, [*range(50000), *range(100000, 100010)]) == 50000
    plain = OllamaCache()
    turn(plain, range(65303))
    assert plain.match(array([*range(50000), 1])).reused == 50000
