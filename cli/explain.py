"""`tplaudit explain`: the documentation of one rule."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import options
from .output import write_rich, write_text


def command(
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE",
            help="A rule's id, as `tplaudit rules` lists them, a rule of the gate, or a cause.",
        ),
    ],
    output: options.Output = None,
) -> None:
    """Print the documentation of a rule or cause: what it is, why it matters, and what helps.

    It is Markdown, which is formatted on a terminal.
    """
    from ..probes.errors import UsageError
    from ..probes.findings import RULES, cause_documentation, documentation
    from ..probes.gate.rules import gate_documentation

    text = documentation(rule) if rule in RULES else cause_documentation(rule) or gate_documentation(rule)
    if text is None:
        raise UsageError(f"there is no rule or cause {rule!r}", where="explain", fix="see `tplaudit rules`")
    if output is None and sys.stdout.isatty():
        from rich.markdown import Markdown

        write_rich(lambda console: console.print(Markdown(text, code_theme="ansi_dark")), output)
    else:
        write_text(text, output)
