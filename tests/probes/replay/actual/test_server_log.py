"""A server's log laid beside a transcript."""

from __future__ import annotations

from pathlib import Path

import pytest
from actual_sessions import batched_log, ferry, replayed
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.errors import InputError
from tplaudit.probes.replay.actual.log_lines import LogEntry
from tplaudit.probes.replay.actual.server_log import AlignedTurn, ServerLog, aligned, guessed, read_log

POLICY = "vllm-mlx"


def turns(*lengths: int | None) -> list[AlignedTurn]:
    return [AlignedTurn(at, length, length) for at, length in enumerate(lengths, 1)]


def entries(*lengths: int) -> list[LogEntry]:
    return [LogEntry((at,), length, 0) for at, length in enumerate(lengths, 1)]


def test_a_log_of_the_counts_of_a_replay_agrees_on_every_turn(tmp_path: Path) -> None:
    counted = replayed(ferry(), POLICY, store="prompt+output")
    log = read_log(batched_log(counted, tmp_path / "server.log"))
    report = replayed(ferry(), POLICY, log, store="prompt+output")
    assert report.agreement is not None
    assert (report.agreement.turns, report.agreement.agreeing) == (10, 10)
    assert report.agreement.log is not None
    assert report.agreement.log.used == tuple(range(2, 12))
    assert report.agreement.log.skipped == 0
    assert {turn.actual.source for turn in report.turns if turn.actual} == {"log"}


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(10, 400), min_size=1, max_size=12),
    others=st.lists(st.tuples(st.integers(0, 12), st.integers(1000, 2000)), max_size=5),
    missing=st.sets(st.integers(0, 11), max_size=3),
    known=st.booleans(),
)
def test_entries_of_a_session_are_found_among_others(
    lengths: list[int], others: list[tuple[int, int]], missing: set[int], known: bool
) -> None:
    """Requests that no turn can be are passed over, and turns without a line get none."""
    log = [(length, at) for at, length in enumerate(lengths, 1) if at - 1 not in missing]
    for place, length in others if known else []:
        log.insert(min(place, len(log)), (length, 0))
    made = [
        LogEntry((at,), length, length // 2) if known else LogEntry((turn,), prefilled=length)
        for at, (length, turn) in enumerate(log, 1)
    ]
    found = aligned(made, turns(*lengths))
    order = [found[turn].lines for turn in sorted(found)]
    assert order == sorted(order)
    if known and not missing:
        assert {turn: entry.prompt_tokens for turn, entry in found.items()} == dict(enumerate(lengths, 1))
    if not known and not missing:
        assert len(found) == len(lengths)


def test_lengths_decide() -> None:
    found = aligned(entries(40, 100, 90, 130), turns(100, 130))
    assert {turn: entry.prompt_tokens for turn, entry in found.items()} == {1: 100, 2: 130}


def test_a_prompt_of_a_like_length_is_the_same_request() -> None:
    assert len(aligned(entries(103, 133), turns(100, 130))) == 2
    assert aligned(entries(3, 4), turns(100, 130)) == {}


def test_a_turn_that_raised_can_have_an_entry() -> None:
    assert list(aligned(entries(100, 7, 130), turns(100, None, 130))) == [1, 2, 3]


def test_where_lines_have_no_length_prefills_decide_among_more_requests_than_turns() -> None:
    log = [LogEntry((at,), prefilled=count) for at, count in enumerate((3, 100, 9, 20), 1)]
    session = [AlignedTurn(1, 100, 100), AlignedTurn(2, 120, 20)]
    assert guessed(log, session)
    assert not guessed(log[:2], session)
    assert [entry.prefilled for entry in aligned(log, session).values()] == [100, 20]


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text("INFO: nothing of that kind\n")
    with pytest.raises(InputError, match="no line of this log says how much a server reused"):
        read_log(empty)
    with pytest.raises(InputError, match="there is no such file"):
        read_log(tmp_path / "none.log")
    binary = tmp_path / "binary.log"
    binary.write_bytes(b"Prompt processing progress: 3/3\n\0\1\2")
    with pytest.raises(InputError, match="binary"):
        read_log(binary)


def test_bytes_that_are_no_text_do_not_hide_the_lines(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff\xfe caf\xe9\nPrompt processing progress: 3/3\n")
    assert read_log(log) == ServerLog(str(log), (LogEntry((2,), prefilled=3),))
