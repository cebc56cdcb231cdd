"""The command line: global options, the error boundary and the exit codes.

0: ran to the end. 1: findings, or a check that failed. 2: nothing could be done. 130: interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..probes.errors import TplauditError
from . import explain, gate, lock, policies, probe, render, replay, rules, thinking

app = typer.Typer(
    name="tplaudit",
    help="Audits chat templates, and finds where and at what cost prompts diverge from the prefix cache.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("probe")(probe.command)
app.command("thinking")(thinking.command)
app.command("replay")(replay.command)
app.command("render")(render.command)
app.command("policies")(policies.command)
app.command("gate")(gate.command)
app.command("lock")(lock.command)
app.command("rules")(rules.command)
app.command("explain")(explain.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tplaudit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Run the command line; what went wrong is one line on stderr."""
    try:
        app()
    except TplauditError as error:
        print(f"tplaudit: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
