from hypothesis import given
from hypothesis import strategies as st
from token_ids import array
from tplaudit.probes.caches.sequences import TokenSequence
from tplaudit.probes.tokenization.tokens import common_prefix_ids


@given(
    st.lists(st.integers(0, 1), max_size=3), st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000)
)
def test_sequences_share_chunks_and_compare_like_tuples(tail, first, second, cut_at):
    one = array([0] * first + [1])
    other = array([0] * second + tail)
    a = TokenSequence.of(one)
    b = TokenSequence.of(other)
    same = sum(mine is theirs for mine, theirs in zip(a.chunks, b.chunks, strict=False))
    shared = common_prefix_ids(one, other)
    assert same >= shared // 1024
    assert a.common(b) == b.common(a) == shared
    assert a.before(b) is (one.tolist() < other.tolist())
    assert b.before(a) is (other.tolist() < one.tolist())
    short = b.prefix(min(cut_at, b.length))
    assert short.length == min(cut_at, b.length) == short.common(b)
