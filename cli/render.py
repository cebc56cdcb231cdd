"""`tplaudit render`: what each server's template would get, and the prompt it writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .output import say, stop, write_json, write_rich, write_text

if TYPE_CHECKING:
    from datetime import datetime

    from ..probes.conversation import Request, Transcript
    from ..probes.llamacpp_engine import LlamaCppEngine
    from ..probes.policies import Policy
    from ..probes.prompt_diff import PromptDiff
    from ..probes.rendered import RenderedTurn
    from ..probes.template import ChatTemplate
    from ..probes.tokens import IncrementalEncoder


class Engine(StrEnum):
    """Another template engine to render with."""

    llamacpp = "llamacpp"


def command(
    transcript: options.TranscriptArgument,
    model: options.Model = None,
    template: options.Template = None,
    policy: options.Policies = None,
    turn: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only this turn, counted from 1. Default: the last one, and all of them with --json."
        ),
    ] = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="POLICY POLICY", help="Only the unified diff of two policies' prompts at a turn."),
    ] = None,
    diff_turns: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="A B", help="Only the unified diff of each policy's prompts at two turns."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show every policy's messages and prompt, and fold nothing.")
    ] = False,
    engine: Annotated[
        Engine | None,
        typer.Option(help="Also render with llama.cpp's own template engine, and show where that differs."),
    ] = None,
    tokenizer: options.Tokenizer = None,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Render a transcript as each server would: its messages, its prompt, and what was done to them.

    First comes what each policy does to the system turns, then, for up to three outcomes, the messages and
    the prompt.
    """
    from ..probes.policies import parse_policy
    from ..probes.transcripts import open_transcript

    wanted = _Wanted(turn, diff, diff_turns, everything=as_json)
    wanted.check(policy)
    names = options.policy_names(list(diff) if diff else policy)
    policies = [parse_policy(name) for name in names]
    renderers = _renderers(model, template, tokenizer, options.read_special_tokens(special_token), options.read_now(now))
    requests = open_transcript(transcript).with_kwargs(options.read_kwargs(kwargs))
    shown = [_render(renderer, requests, wanted, policies, engine) for renderer in renderers]
    if as_json:
        documents = [_to_json(one, requests.source) for one in shown]
        write_json(_document(documents, folder=_is_folder(model, template)), output)
    elif diff or diff_turns:
        _write_diffs([each for one in shown for each in one.diffs], output)
    else:
        from .formats.render_text import draw

        for one in shown:
            last = one.turns[-1]
            write_rich(lambda console: draw(last, one.template, console, source=requests.source, full=full), output)
    results = [rendered for one in shown for each in one.turns for rendered in each.policies]
    if all(rendered.prompt is None for rendered in results):
        say(f"tplaudit: no turn rendered under any policy ({results[0].error}); try another --policy or template")
        stop(2)
