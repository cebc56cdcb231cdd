from tplaudit.probes.caches.partial_blocks import TailIndex


def test_parents_are_forgotten_all_at_once():
    index = TailIndex()
    for number in range(4096):
        assert index.add(number.to_bytes(2), b"tail %d" % number, 1) == ()
    assert len(index.add(b"one more", b"tail", 1)) == 4096
    assert [*index.longest_first(b"\x00\x00", 9)] == []
    assert [*index.longest_first(b"one more", 9)] == [(b"tail", 1)]
