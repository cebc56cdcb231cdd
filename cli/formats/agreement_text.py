"""What a server said of its reuse beside what is counted, and the ranking of servers by it, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Console
from rich.markup import escape

from ...probes.replay.replay_report import Agreement, LogLines, PolicyReport, RankedCandidate, Ranking
from .tables import titled

#: Ranges of log lines, and tied candidates, that a sentence names.
_NAMED = 12


def agreement_lines(policy: PolicyReport) -> Iterator[str]:
    """Say on how many turns counted and actual reuse agree, why the first differs, and what a log gave."""
    agreement = policy.agreement
    if agreement is None:
        return
    if agreement.missing:
        yield f"No answer in the transcript says how much was actually reused; for that, {agreement.missing}."
    if agreement.turns:
        yield _agreeing(agreement)
    if agreement.log is not None:
        yield _log(agreement.log)


def _agreeing(agreement: Agreement) -> str:
    turns = f"{agreement.turns} turn{'' if agreement.turns == 1 else 's'}"
    said = (
        f"Counted and actual reuse agree on {agreement.agreeing} of the {turns} with a number of the server."
    )
    if agreement.whole_repeats:
        said += (
            f" On {agreement.whole_repeats} of them its usage counts the whole prompt as reused, as it does "
            "where all but the last token was: that agrees."
        )
    first = agreement.first
    if first is None:
        return said
    counted = "nothing" if first.counted is None else f"{first.counted:,}"
    also = f" (the same number comes from: {', '.join(first.also)})" if first.also else ""
    return (
        f"{said} The first that differs is turn {first.turn} ({counted} counted, {first.actual:,} actual): "
        f"{first.evidence}{also}."
    )


def _log(log: LogLines) -> str:
    used = f"lines {ranges(log.used)}" if log.used else "no line"
    said = (
        f"From {log.source} {used} were used, for {log.entries} turns; {log.skipped} more requests in it "
        "belong to no turn or do not say what was reused."
    )
    if log.by_prefill:
        said += (
            " Its lines do not say how long prompts are, so the counted tokens helped to find them, and the "
            "agreement may be too good."
        )
    return said


def ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers in words, neighbours as a range: `3-5, 9`; the rest is counted."""
    if not numbers:
        return ""
    starts = [at for at, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    runs = [numbers[start:end] for start, end in zip([0, *starts], [*starts, len(numbers)], strict=True)]
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:_NAMED]]
    left = sum(len(run) for run in runs[_NAMED:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def draw_ranking(ranking: Ranking, console: Console) -> None:
    """Print which servers explain best what was actually reused."""
    table = titled(f"which server fits: the best of {ranking.tried} tried")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("policy", overflow="fold")
    for name in ("store", "blocks", "agree", "same length", "tokens apart"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, each in enumerate(ranking.candidates, 1):
        table.add_row(str(place), escape(each.policy), *_cells(each))
    console.print(table)
    console.print(escape(_verdict(ranking)), soft_wrap=True)
    console.print()


def _cells(each: RankedCandidate) -> list[str]:
    blocks = f"{each.block_size:,}" if each.block_size else ""
    counts = f"{each.agreeing} of {each.of} turns", f"{each.lengths}", f"{each.difference:,}"
    return [each.store, blocks, *counts]


def _verdict(ranking: Ranking) -> str:
    best = ranking.candidates[0]
    tied = ranking.tied
    said = f"The best is {best.described}, with {best.agreeing} of {best.of} turns."
    if not ranking.fits:
        said = (
            f"Nothing fits: the best, {best.described}, agrees on {best.agreeing} of {best.of} turns only. "
            "Model, template or tokenizer may be others than the server's, or its rule is one that no policy "
            "has."
        )
    if len(tied) > 1:
        more = f" and {len(tied) - _NAMED} more" if len(tied) > _NAMED else ""
        names = "; ".join(tied[:_NAMED])
        said += f" {len(tied)} are tied, and cannot be told apart by this session: {names}{more}."
    return f"{said} What follows is a replay with {best.described}."
