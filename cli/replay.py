"""`tplaudit replay`: a transcript, turn by turn, against a real prefix cache."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.replay import Replay


class Engine(StrEnum):
    """What fills the cache."""

    tokens = "tokens"
    mlx = "mlx"


def command(
    transcript: options.TranscriptArgument,
    model: options.Model = None,
    template: options.Template = None,
    policy: options.Policies = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            help="mlx prefills with the real model, tokens only counts. Default: mlx for the bundled model "
            "and for weights below 2 GB, else tokens."
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per cache block.")] = 256,
    cache_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most that the cache may hold, such as 64MB.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every prefill with a cold one; needs the mlx engine.")
    ] = False,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Replay a transcript: where each turn parts from the cache, and what is computed again.

    Each policy runs against an empty cache of its own. Token counts are counted; seconds are measured, with
    the mlx engine only.
    """
    from ..probes.errors import InputError, UsageError
    from ..probes.models import load_model
    from ..probes.policies import parse_policy
    from ..probes.replay import Replay
    from ..probes.transcripts import open_transcript
    from .formats.replay_text import draw

    policies = [parse_policy(name) for name in options.policy_names(policy)]
    loaded = load_model(
        model,
        template=template,
        tokenizer=tokenizer,
        special_tokens=options.read_special_tokens(special_token),
        now=options.read_now(now),
    )
    requests = open_transcript(transcript).with_kwargs(options.read_kwargs(kwargs))
    chosen = engine.value if engine else loaded.default_engine
    if verify and chosen != "mlx":
        raise UsageError(
            "there is nothing to verify without a model", where="--verify", fix="add --engine mlx"
        )
    capacity = options.read_size(cache_bytes)
    if capacity is not None and chosen == "tokens" and loaded.bytes_per_token is None:
        raise UsageError(
            "the model's config.json does not say how large a token's K and V are",
            where="--cache-bytes",
            fix="leave it out, or use --engine mlx",
        )
    for note in loaded.notes:
        say(f"note: {note}")
    replay = Replay(
        requests,
        loaded,
        policies,
        block_size=block_size,
        engine=loaded.load_engine() if chosen == "mlx" else None,
        capacity_bytes=capacity,
        verify=verify,
    )
    failure: str | None = None
    code = 0
    try:
        _run(replay)
    except InputError as error:
        failure, code = str(error), 2
    except KeyboardInterrupt:
        failure, code = "interrupted", 130
    report = replay.report(complete=failure is None, error=failure)
    if any(one.turns for one in report.policies):
        if as_json:
            from ..probes.report import to_json

            write_json(to_json(report), output)
        else:
            write_rich(lambda console: draw(report, console), output)
    if failure:
        say(f"tplaudit: {failure}")
    elif not any(turn.error is None for one in report.policies for turn in one.turns):
        say(f"tplaudit: {_nothing_rendered(replay)}")
        code = 2
    elif report.verify is not None and not report.verify.passed:
        code = 1
    stop(code)


def _run(replay: Replay) -> None:
    """Run all turns, with progress on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    started = time.monotonic()
    with console.status("replaying …", spinner="dots") as status:
        for number, turns in enumerate(replay.turns(), 1):
            tokens = max((turn.prompt_tokens or 0 for turn in turns), default=0)
            status.update(f"turn {number}: {tokens:,} tokens, {time.monotonic() - started:.0f} s")


def _nothing_rendered(replay: Replay) -> str:
    first = replay.report().policies[0]
    if not first.turns:
        return f"{replay.transcript.source}: there is no request in it; give a transcript with messages"
    return f"no turn rendered under any policy ({first.turns[0].error}); try another --policy or template"
