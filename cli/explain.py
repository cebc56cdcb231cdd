"""`tplaudit explain`: the documentation of one rule."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .output import write_text


def command(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule's id; `tplaudit rules` lists them.")],
    output: options.Output = None,
) -> None:
    """Print the documentation of a rule: what it looks for, why it matters, and what helps."""
    from ..probes.errors import UsageError
    from ..probes.findings import RULES, documentation

    if rule not in RULES:
        raise UsageError(f"there is no rule {rule!r}", where="explain", fix="see `tplaudit rules`")
    write_text(documentation(rule), output)
