"""The command line: global options, the error boundary and the exit codes.

0: ran to the end. 1: findings, or a check that failed. 2: nothing could be done. 130: interrupted.
143: terminated.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated

try:
    import typer

    from .. import __version__
    from ..probes.errors import TplauditError, UsageError
    from . import calibrate, explain, gate, lock, policies, probe, render, replay, rules, thinking
    from .output import discard_stdout, say
except KeyboardInterrupt:
    sys.exit(128 + signal.SIGINT)

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
app.command("calibrate")(calibrate.command)
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


class Terminated(KeyboardInterrupt):
    """The process was asked to end; it does what it does on Ctrl-C."""


def main() -> None:
    """Run the command line; what went wrong is one line on stderr."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _run()
    except TplauditError as error:
        code = _failed(str(error))
    except Terminated:
        code = 128 + signal.SIGTERM
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = 2
    except OSError as error:
        code = _failed(f"{error.filename or 'output'}: {(error.strerror or str(error)).lower()}")
    except Exception as error:
        if os.environ.get("TPLAUDIT_TRACEBACK"):
            raise
        code = _failed(f"internal error ({type(error).__name__}: {str(error)[:300]}); please report it")
    if code == 128 + signal.SIGINT and _terminated:
        code = 128 + signal.SIGTERM
    sys.exit(code)


def _run() -> int:
    """Run a command, and return its exit code once all is written."""
    if sys.stdout is None:
        raise UsageError("stdout is closed", fix="send it to a file or to /dev/null")
    try:
        app()
    except SystemExit as stop:
        try:
            sys.stdout.flush()
        except OSError:
            discard_stdout()
            raise
        # A pipe that is closed is no finding, though typer and rich end with 1 then.
        closed = isinstance(stop.__context__, BrokenPipeError)
        return 2 if closed or not isinstance(stop.code, int | None) else stop.code or 0
    except OSError:
        discard_stdout()  # what is left in its buffer would fail again at exit
        raise
    return 0


def _failed(text: str) -> int:
    say(f"tplaudit: {text}")
    return 2


_terminated: list[int] = []


def _terminate(number: int, frame: FrameType | None) -> None:
    _terminated.append(number)
    raise Terminated


if __name__ == "__main__":
    main()
