"""`tplaudit policies`: what each server does to a request, and what that is known from."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .output import write_json, write_rich


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A policy's name: explain this one.", show_default=False),
    ] = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """List the policies, or explain one: what it does, its options, its source, and a worked example."""
    from .. import __version__
    from ..probes.policies.pages import page, to_json
    from ..probes.policies.registry import POLICIES, find_kind

    kind = None if name is None else find_kind(name, "policies")
    if as_json:
        kinds = [kind] if kind else POLICIES.values()
        policies = [to_json(each, documentation=kind is not None) for each in kinds]
        write_json({"schema": "tplaudit.policies/1", "tplaudit": __version__, "policies": policies}, output)
        return
    from .formats.policies_text import draw, draw_one

    if kind is None:
        write_rich(draw, output)
    else:
        write_rich(lambda console: draw_one(kind, page(kind.name), console), output)
