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
    as_json: options.Json = True,
    output: options.Output = None,
) -> None:
    """Render a transcript as each server would: its messages, its prompt, and what was done to them.

    Prints JSON.
    """
    import msgspec

    from .. import __version__
    from ..probes.errors import UsageError
    from ..probes.models import load_model
    from ..probes.policies import parse_policy
    from ..probes.rendered import SCHEMA, render_turns
    from ..probes.tokens import IncrementalEncoder
    from ..probes.transcripts import open_transcript

    policies = [parse_policy(name) for name in options.policy_names(policy)]
    loaded = load_model(
        model,
        template=template,
        tokenizer=tokenizer,
        special_tokens=options.read_special_tokens(special_token),
        now=options.read_now(now),
    )
    counts = loaded.kind != "template" or tokenizer is not None
    encoder = IncrementalEncoder(loaded.tokenizer) if counts else None
    requests = open_transcript(transcript).with_kwargs(options.read_kwargs(kwargs))
    turns = list(render_turns(requests, loaded.template, policies, encoder=encoder, only=turn))
    if not turns:
        raise UsageError(f"there is no turn {turn}", where=transcript, fix="give a smaller --turn")
    document = {
        "schema": SCHEMA,
        "tplaudit": __version__,
        "transcript": transcript,
        "template": loaded.template.source,
        "turns": msgspec.to_builtins(turns),
    }
    write_json(document, output)
    stop(0 if any(one.error is None for each in turns for one in each.policies) else 2)
