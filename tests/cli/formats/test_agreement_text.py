"""Sentences about counted and actual reuse."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from tplaudit.cli.console import SafeConsole
from tplaudit.cli.formats.agreement_text import agreement_lines, draw_ranking, ranges
from tplaudit.cli.output import PIPED_WIDTH
from tplaudit.probes.replay.replay_report import (
    Agreement,
    Disagreement,
    LogLines,
    PolicyReport,
    RankedCandidate,
    Ranking,
)

from tests.actual_sessions import ferry, replayed


@pytest.fixture(scope="module")
def policy() -> PolicyReport:
    return replayed(ferry(1), "as-is")


def lines(policy: PolicyReport, agreement: Agreement | None) -> list[str]:
    return list(agreement_lines(replace(policy, agreement=agreement)))


def test_nothing_is_said_where_nothing_is_known(policy: PolicyReport) -> None:
    assert lines(policy, None) == []


def test_the_first_that_differs_and_what_else_gives_its_number(policy: PolicyReport) -> None:
    first = Disagreement(4, 2048, 0, "evicted", "without turn 3 the cache gives 0", ("restart",))
    (said,) = lines(policy, Agreement(9, 8, first=first))
    assert said == (
        "Counted and actual reuse agree on 8 of the 9 turns with a number of the server. The first that "
        "differs is turn 4 (2,048 counted, 0 actual): without turn 3 the cache gives 0 (the same number "
        "comes from: restart)."
    )


def test_whole_repeats_are_said(policy: PolicyReport) -> None:
    (said,) = lines(policy, Agreement(9, 9, whole_repeats=2))
    assert "On 2 of them its usage counts the whole prompt" in said


def test_a_log_says_which_lines_were_used(policy: PolicyReport) -> None:
    _, said = lines(policy, Agreement(3, 3, log=LogLines("a.log", (2, 3, 9), 3, 1, True)))
    assert said.startswith("From a.log lines 2-3, 9 were used, for 3 turns; 1 more requests")
    assert "the agreement may be too good" in said


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((), ""),
        ((5,), "5"),
        ((1, 2, 3), "1-3"),
        ((1, 3, 4, 9), "1, 3-4, 9"),
        (tuple(range(1, 40, 2)), "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 8 more"),
    ],
)
def test_ranges(numbers: tuple[int, ...], words: str) -> None:
    assert ranges(numbers) == words


def test_a_ranking_says_ties_and_that_nothing_fits() -> None:
    one = RankedCandidate("vllm", "prompt", 32, 3, 9, 9, 70, False, (1, 2, 3))
    found = Ranking(12, False, (one.described, "--policy sglang --store prompt"), (one,))
    console = SafeConsole(file=StringIO(), record=True, width=PIPED_WIDTH)
    draw_ranking(found, console)
    text = console.export_text()
    assert "Nothing fits: the best, --policy vllm --store prompt --block-size 32, agrees on 3 of 9" in text
    assert "2 are tied, and cannot be told apart by this session" in text
