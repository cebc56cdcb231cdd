"""`tplaudit render`: what each server's template would get, and the prompt it writes."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .output import stop, write_json


def command(
    transcript: options.TranscriptArgument,
    model: options.Model = None,
    template: options.Template = None,
    policy: options.Policies = None,
    turn: Annotated[int | None, typer.Option(min=1, help="Only this turn, counted from 1.")] = None,
    tokenizer: options.Tokenizer = None,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Render a transcript under each policy; prints JSON."""
