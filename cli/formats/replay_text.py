"""The replay's report as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...probes.replay.replay_report import (
    ConversationReport,
    Divergence,
    PolicyReport,
    Remedy,
    ReplayFinding,
    ReplayReport,
    Totals,
    TurnReport,
)
from ...probes.replay.summary import fails_sentence
from .agreement_text import agreement_lines, draw_ranking
from .durations import duration
from .tables import titled

#: Characters of each text shown at a divergence.
SHOWN = 28
#: Turns that a line names.
NAMED = 12
STYLES = {"error": "red", "warning": "yellow", "note": "dim"}


_COUNTS = ("turn", "prompt", "shared", "reused", "actual", "re-prefill", "unavoidable", "avoidable")
_WHY = ("diverges at", "cause", "remedy (tokens saved)")
_WHERE = ("first divergence from what its predecessor stored",)
#: Columns that a narrower console leaves out, so that the others can be read.
_LEAST_WIDTH = {"remedy (tokens saved)": 130, "unavoidable": 120, "reused": 120, "re-prefill": 90}
_SERVER_SAID = "actual"


def draw(report: ReplayReport, console: Console, conversation: int | None = None) -> None:
    """Print the report, or what of it belongs to one conversation."""
    if not report.complete:
        console.print(escape(f"Incomplete: {report.error}."), style="bold")
    if report.ranking is not None:
        draw_ranking(report.ranking, console)
    for policy in report.policies:
        if policy.fails is not None and policy.fails.turns == policy.fails.of:
            console.print(escape(f"policy {policy.policy} {fails_sentence(policy.fails)}"), style="red")
            for line in agreement_lines(policy):
                console.print(escape(line))
            console.print()
            continue
        _draw_conversations(policy, console, conversation)
        console.print(escape(policy.summary))
        for line in (*agreement_lines(policy), *_unexplained(policy), *_tried(policy)):
            console.print(escape(line))
        if policy.totals.wasted:
            console.print(escape(_times(policy, report.hours)))
        console.print()
    if len(report.policies) > 1:
        console.print(_comparison(report))
        console.print()
    for same in _alike(report.findings):
        console.print(escape(_finding(same)), style=STYLES[same[0].severity])
    if report.findings:
        console.print()
    console.print(escape(_provenance(report)), style="dim")
    if report.verify is not None:
        console.print(escape(_verification(report)))
    for note in report.notes:
        console.print(escape(f"Note: {note}."), style="dim")
    if not report.complete:
        console.print(
            escape(f"Incomplete: {report.error}. The turns above are those that were run."), style="bold"
        )


def _draw_conversations(policy: PolicyReport, console: Console, only: int | None) -> None:
    """Print a policy's turns by conversations, and the sums: a table for each that diverges, else a line."""
    title = f"policy {policy.policy}"
    if len(policy.conversations) < 2:
        console.print(_table(title, policy.turns, policy.totals, console.width))
        return
    for each in policy.conversations:
        if only not in (None, each.conversation):
            continue
        turns = [turn for turn in policy.turns if turn.conversation == each.conversation]
        if only is not None or any(map(_is_shown, turns)):
            console.print(_table(f"{title}, {each.shown}", turns, each.totals, console.width))
        else:
            console.print(escape(f"{title}, {_in_a_line(each)}"), soft_wrap=True)
    if only is None:
        console.print(_sums(policy))


def _is_shown(turn: TurnReport) -> bool:
    """Whether a turn is worth a table: it diverges, raises, wastes, or the server says something else."""
    said = turn.actual is not None and turn.actual.reused != turn.reused
    return said or bool(turn.divergence or turn.error or turn.avoidable)


def _in_a_line(each: ConversationReport) -> str:
    totals = each.totals
    turns = f"turn {each.turns[0]}"
    if len(each.turns) > 1:
        turns = f"{len(each.turns)} turns, {each.turns[0]} to {each.turns[-1]}"
    return (
        f"{each.shown} ({turns}): no prompt diverges; {totals.reused:,} of {totals.prompt_tokens:,} tokens "
        f"reused, {totals.reprefill:,} prefilled."
    )


def _sums(policy: PolicyReport) -> Table:
    table = titled(escape(f"policy {policy.policy}, conversations"), "conversation")
    for name in ("turns", "raised", "prompt", "reused", "re-prefill", "unavoidable", "avoidable"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in policy.conversations:
        name = f" {each.name}" if each.name else ""
        shown = f"{each.conversation}{name}{' (a guess)' if each.guessed else ''}"
        table.add_row(escape(shown), *_sum_cells(len(each.turns), each.totals))
    table.add_section()
    table.add_row("all", *_sum_cells(len(policy.turns), policy.totals), style="bold")
    return table


def _sum_cells(turns: int, totals: Totals) -> list[str]:
    counts = (turns, totals.failed, totals.prompt_tokens, totals.reused, totals.reprefill)
    return [f"{count:,}" for count in (*counts, totals.unavoidable, totals.avoidable)]


def _table(title: str, turns: Sequence[TurnReport], totals: Totals, width: int) -> Table:
    timed = totals.seconds is not None
    explained = any(turn.divergence and turn.divergence.cause for turn in turns)
    columns = [*_COUNTS, *(["seconds"] if timed else []), *(_WHY if explained else _WHERE)]
    hidden = {name for name, least in _LEAST_WIDTH.items() if width < least}
    if all(turn.actual is None for turn in turns):
        hidden.add(_SERVER_SAID)
    shown = [at for at, name in enumerate(columns) if name not in hidden]
    last = [
        "sum",
        _number(totals.prompt_tokens),
        "",
        _number(totals.reused),
        _number(sum(turn.actual.reused for turn in turns if turn.actual)),
        _number(totals.reprefill),
        _number(totals.unavoidable),
        _number(totals.avoidable),
        *([_seconds(totals.seconds, _predicted(turns))] if timed else []),
        *_share(totals, explained),
    ]
    table = titled(escape(title))
    for at in shown:
        name = columns[at]
        if name in _COUNTS or name == "seconds":
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    for same in _groups(turns):
        row = _row(same, timed, explained)
        table.add_row(*(row[at] for at in shown), style="red" if same[0].error else None)
    table.add_section()
    table.add_row(*(last[at] for at in shown), style="bold")
    return table


def _unexplained(policy: PolicyReport) -> Iterator[str]:
    """Name the turns with avoidable tokens that no proven cause accounts for, the largest first."""
    left = sorted(((turn.unexplained, turn.turn) for turn in policy.turns if turn.unexplained), reverse=True)
    if not left:
        return
    named = ", ".join(f"turn {turn} ({tokens:,})" for tokens, turn in left[:NAMED])
    if len(left) > NAMED:
        named += f" and {len(left) - NAMED} more ({sum(tokens for tokens, _ in left[NAMED:]):,})"
    tokens = sum(tokens for tokens, _ in left)
    yield f"Not explained: {tokens:,} of {policy.totals.avoidable:,} avoidable tokens, in {named}."


def _tried(policy: PolicyReport) -> Iterator[str]:
    """Say what the remedies came to that were tried on the whole session."""
    before = policy.totals
    for tried in policy.tried:
        raised = f"; {tried.raised} turns raise then" if tried.raised else ""
        steps = ", ".join(f"{step.set} saves {step.saves:,}" for step in tried.steps)
        yield (
            f"Tried on the whole session: {tried.remedy.set}: avoidable {before.avoidable:,} -> "
            f"{tried.totals.avoidable:,}, re-prefilled {before.reprefill:,} -> {tried.totals.reprefill:,}"
            f"{f' ({steps})' if steps else ''}{raised}."
        )


def _share(totals: Totals, explained: bool) -> list[str]:
    share = _percent(totals.avoidable, totals.prompt_tokens)
    if explained:
        return [f"{share} avoidable", "", ""]
    return [f"{share} of all prompt tokens were avoidable work"]


def _predicted(turns: Sequence[TurnReport]) -> bool:
    return any(turn.cost is not None and turn.cost.kind == "predicted" for turn in turns)


def _times(policy: PolicyReport, hours: float | None) -> str:
    """Say how long the prefills took, how much of that was avoidable, and how fast the model was."""
    totals = policy.totals
    assert totals.seconds is not None and totals.wasted is not None
    kind = "predicted" if _predicted(policy.turns) else "measured"
    if kind == "predicted" and totals.measured:
        kind = "partly predicted"
    wasted = totals.wasted
    raised = sum(turn.error is not None for turn in policy.turns)
    what = f"the {len(policy.turns) - raised} turns that rendered" if raised else "the session"
    said = (
        f"Prefilling {what} takes {duration(totals.seconds)} ({kind}), of which "
        f"{duration(wasted.seconds)} are avoidable (predicted)."
    )
    if wasted.per_hour is not None and hours is not None:
        said += (
            f" By its timestamps the session took {duration(3600 * hours)}: "
            f"{duration(wasted.per_hour.seconds)} are wasted per hour."
        )
    if totals.measured is None:
        return said
    speed = totals.measured
    rate = "" if speed.tokens_per_second is None else f"{speed.tokens_per_second:,.0f} tokens per second; "
    return f"{said} Measured: {rate}at most {speed.peak_bytes / 1e6:,.0f} MB held, all caches included."


def _groups(turns: Sequence[TurnReport]) -> Iterator[list[TurnReport]]:
    """Group neighbouring turns that raised the same error; every other turn is a group of its own."""
    group: list[TurnReport] = []
    for turn in turns:
        if group and (turn.error is None or turn.error != group[-1].error):
            yield group
            group = []
        group.append(turn)
    if group:
        yield group


def _row(same: Sequence[TurnReport], timed: bool, explained: bool) -> list[str]:
    turn = same[0]
    if turn.error is not None:
        number = str(turn.turn) if len(same) == 1 else f"{turn.turn}-{same[-1].turn}"
        counts = ["", "", "", _actual(same), "", "", "", *([""] if timed else [])]
        return [number, *counts, escape(turn.error), *(["", ""] if explained else [])]
    avoidable = _number(turn.avoidable)
    return [
        str(turn.turn),
        *map(_number, (turn.prompt_tokens, turn.depth, turn.reused)),
        _actual(same),
        _number(turn.reprefill),
        _number(turn.unavoidable),
        f"[yellow]{avoidable}[/yellow]" if turn.avoidable else avoidable,
        *([_cost(turn)] if timed else []),
        *map(escape, _why(turn) if explained else [_difference(turn)]),
    ]


def _actual(same: Sequence[TurnReport]) -> str:
    """Return what the server reused in some turns that share a row."""
    return ", ".join(_number(turn.actual.reused) for turn in same if turn.actual)


def _why(turn: TurnReport) -> list[str]:
    """Say in a few words where a prompt diverges, why, and what would prevent it."""
    divergence = turn.divergence
    evicted = next((miss for miss in turn.losses if miss.cause == "evicted"), None)
    if divergence is None or (evicted and evicted.tokens * 2 > (turn.avoidable or 0)):
        return ["", "evicted", _remedy(evicted.remedy)] if evicted else ["", "", ""]
    likely = "" if divergence.confirmed or divergence.cause in (None, "other") else " (likely)"
    more = (
        f", then {', '.join(link.cause for link in divergence.chain[1:])}"
        if len(divergence.chain) > 1
        else ""
    )
    return [_place(turn, divergence), f"{divergence.cause or ''}{likely}{more}", _remedy(divergence.remedy)]


def _remedy(remedy: Remedy | None) -> str:
    return f"{remedy.set} ({remedy.saves:,})" if remedy else ""


def _alike(findings: Sequence[ReplayFinding]) -> list[list[ReplayFinding]]:
    """Group findings that say the same of several policies, in the order of the first of each."""
    groups: dict[tuple[str, str, str], list[ReplayFinding]] = {}
    for finding in findings:
        key = (finding.rule, finding.confidence, finding.message)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _finding(same: Sequence[ReplayFinding]) -> str:
    finding = same[0]
    policies = ", ".join(each.policy for each in same)
    likely = "" if finding.confidence == "confirmed" else ", likely"
    return f"{finding.severity} {finding.rule} ({policies}{likely}): {finding.message}."


def _difference(turn: TurnReport) -> str:
    divergence = turn.divergence
    if divergence is None:
        return ""
    return (
        f"{_place(turn, divergence)}: stored {_excerpt(divergence.stored)}, now {_excerpt(divergence.prompt)}"
    )


def _place(turn: TurnReport, divergence: Divergence) -> str:
    if divergence.message is None:
        return {"tools": "tool list", "generation": "generation prompt"}.get(
            divergence.region, "template text"
        )
    done = [
        action.kind
        for action in turn.actions
        if divergence.message.index in action.messages and action.kind in ("hoisted", "noted", "relocated")
    ]
    index = divergence.message.index
    name = "system prompt" if index is None else f"message {index} {divergence.message.role}"
    return ", ".join([name, *done[:1]])


def _excerpt(text: str) -> str:
    shown = repr(text[:SHOWN])
    return f"{shown}…" if len(text) > SHOWN else shown


def _comparison(report: ReplayReport) -> Table:
    title = "all policies" if report.complete else "all policies, for the turns that were run"
    table = titled(title)
    table.add_column("policy", no_wrap=True)
    timed = any(policy.totals.seconds is not None for policy in report.policies)
    names = ("turns", "raised", "prompt tokens", "reused", "re-prefilled", "avoidable")
    for name in (*names, *(("seconds", "wasted") if timed else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for policy in sorted(report.policies, key=lambda each: each.totals.failed):
        totals = policy.totals
        avoidable = f"{_number(totals.avoidable)} ({_percent(totals.avoidable, totals.prompt_tokens)})"
        counts = (len(policy.turns), totals.failed, totals.prompt_tokens, totals.reused, totals.reprefill)
        table.add_row(
            escape(policy.policy),
            *map(_number, counts),
            "fails" if policy.fails else avoidable,
            *([_seconds(totals.seconds, _predicted(policy.turns)), _wasted(totals)] if timed else []),
        )
    return table


def _provenance(report: ReplayReport) -> str:
    model = report.model
    ran = (
        "No model ran (engine tokens), so there are no seconds; tplaudit calibrate lets replay predict them."
    )
    if report.engine == "mlx":
        ran = f"Seconds are measured: {model.architecture} model ({model.weights}; {model.blas} BLAS)."
    if report.prediction is not None and any(_predicted(policy.turns) for policy in report.policies):
        ran = f"{_engine(report)} {_prediction(report)}"
    tokenizer = "the bundled tokenizer" if model.tokenizer == "bundled" else model.tokenizer
    layers = "" if report.cache.layers == "plain" else f", for layers of kind {report.cache.layers}"
    return f"Tokens are counted with {tokenizer}; cache: {_caches(report)}{layers}.{_replies(report)} {ran}"


def _engine(report: ReplayReport) -> str:
    """Say what ran where seconds are predicted."""
    if report.engine == "tokens":
        return "No model ran (engine tokens):"
    model = report.model
    return f"Seconds are measured: {model.architecture} model ({model.weights}; {model.blas} BLAS). With ~"


def _prediction(report: ReplayReport) -> str:
    """Say what seconds are predicted from, and with what error."""
    prediction = report.prediction
    assert prediction is not None
    said = f"seconds are predicted from {prediction.source}"
    quality = prediction.measured
    if quality is None:
        return f"{said}."
    known = (
        "; the error is not known"
        if quality.error is None
        else f"; the error is {quality.error:.0%} (root mean square)"
    )
    beyond = {
        turn.turn
        for policy in report.policies
        for turn in policy.turns
        if turn.cost is not None
        and turn.cost.kind == "predicted"
        and (turn.prompt_tokens or 0) > quality.longest
    }
    if quality.correction is not None:
        known = f" times {quality.correction:.2f}, as in the {quality.prefills} prefills that ran{known}"
    if not beyond:
        return f"{said}{known}."
    turns = "1 turn" if len(beyond) == 1 else f"{len(beyond)} turns"
    return (
        f"{said}{known}. In {turns} the prompt is longer than all measured ones "
        f"({quality.longest:,} tokens). Those seconds are extrapolated, and their error is not known."
    )


def _replies(report: ReplayReport) -> str:
    """Say which replies are stored, and whether as they were generated."""
    if report.cache.store == "prompt":
        return ""
    replies = [turn.reply for policy in report.policies for turn in policy.turns if turn.reply]
    counts = Counter(each.source if each.tokens else "" for each in replies)
    words = {
        "generated": "with their generated ids",
        "text": "with the ids of their text",
        "": f"left out by the server{_leaving(report)}",
    }
    said = [f"{counts[kind]:,} {what}" for kind, what in words.items() if counts[kind]]
    return f" Replies are stored: {', '.join(said) or 'the transcript has none'}."


def _leaving(report: ReplayReport) -> str:
    """Name the policies whose server leaves replies out, where there are several."""
    names = [
        policy.policy
        for policy in report.policies
        if any(turn.reply and not turn.reply.tokens for turn in policy.turns)
    ]
    return f" ({', '.join(names)})" if len(report.policies) > 1 else ""


def _caches(report: ReplayReport) -> str:
    """Name the cache, or each of several with its policies."""
    policies: dict[str, list[str]] = {}
    for policy in report.policies:
        policies.setdefault(policy.server_cache.described, []).append(policy.policy)
    if len(policies) == 1:
        return next(iter(policies))
    return "; ".join(f"{cache} ({', '.join(names)})" for cache, names in policies.items())


def _verification(report: ReplayReport) -> str:
    verify = report.verify
    assert verify is not None
    same = "the same every time" if verify.argmax_equal else "not always the same"
    verdict = "equal to a cold prefill" if verify.passed else "DIFFERENT from a cold prefill"
    return (
        f"Verified {verify.checked_turns} prefills, {verdict}: largest logit difference "
        f"{verify.max_abs_logit_difference:.2g} (measured; noise between cold prefills "
        f"{verify.cold_noise:.2g}), next token {same}."
    )


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _seconds(value: float | None, predicted: bool = False) -> str:
    return "" if value is None else f"{'~' if predicted else ''}{value:.2f}"


def _cost(turn: TurnReport) -> str:
    return _seconds(turn.cost.seconds, turn.cost.kind == "predicted") if turn.cost else ""


def _wasted(totals: Totals) -> str:
    return _seconds(totals.wasted.seconds, True) if totals.wasted else ""


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0 %"
