"""The command line: global options, the error boundary and the exit codes.

0: ran to the end. 1: findings, or a check that failed. 2: nothing could be done. 130: interrupted.
143: terminated. 129: its terminal was closed.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated, Any

try:
    import typer

    from .. import __version__
    from ..probes.errors import TplauditError, UsageError
    from . import (
        calibrate,
        explain,
        gate,
        lock,
        policies,
        probe,
        render,
        replay,
        rules,
        thinking,
        transcripts,
    )
    from .help import HelpCommand, HelpGroup
    from .output import discard_stdout, say
except KeyboardInterrupt:
    sys.exit(128 + signal.SIGINT)

app = typer.Typer(
    name="tplaudit",
    cls=HelpGroup,
    help="Audits chat templates, and finds where and at what cost prompts diverge from the prefix cache.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("probe", cls=HelpCommand)(probe.command)
app.command("thinking", cls=HelpCommand)(thinking.command)
app.command("replay", cls=HelpCommand)(replay.command)
app.command("transcripts", cls=HelpCommand)(transcripts.command)
app.command("calibrate", cls=HelpCommand)(calibrate.command)
app.command("render", cls=HelpCommand)(render.command)
app.command("policies", cls=HelpCommand)(policies.command)
app.command("gate", cls=HelpCommand)(gate.command)
app.command("lock", cls=HelpCommand)(lock.command)
app.command("rules", cls=HelpCommand)(rules.command)
app.command("explain", cls=HelpCommand)(explain.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tplaudit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command; alone, the help."""
    if context.invoked_subcommand is None:
        context.get_help()
        raise typer.Exit(2)


class Terminated(KeyboardInterrupt):
    """The process was asked to end; it does what it does on Ctrl-C."""


def main() -> None:
    """Run the command line; what went wrong is one line on stderr."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores the latter
            signal.signal(number, _terminate)
    try:
        code = _run()
    except TplauditError as error:
        code = _failed(str(error))
    except Terminated:
        code = 128 + _ended[-1]
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
    if code == 128 + signal.SIGINT and _ended:
        code = 128 + _ended[-1]
    sys.exit(code)


def _run() -> int:
    """Run a command, and return its exit code once all is written."""
    if sys.stdout is None:
        raise UsageError("stdout is closed", fix="send it to a file or to /dev/null")
    try:
        code = app(prog_name="tplaudit", standalone_mode=False) or 0
        sys.stdout.flush()
    except SystemExit as stop:  # typer ends so where a pipe is closed, and with 1, but that is no finding
        discard_stdout()
        return 2 if isinstance(stop.__context__, BrokenPipeError) else int(stop.code or 0)
    except OSError:
        discard_stdout()  # what is left in its buffer would fail again at exit
        raise
    except Exception as error:
        if hasattr(error, "format_message"):  # click's, wherever the installed typer has click from
            raise _misused(error) from None
        raise
    return int(code)


def _misused(error: Any) -> UsageError:
    """Return what click says of wrong arguments as one of our own errors."""
    said = str(error.format_message()).rstrip(".")
    command = error.ctx.command_path if getattr(error, "ctx", None) else "tplaudit"
    return UsageError(f"{said[:1].lower()}{said[1:]}", fix=f"see {command} --help")


def _failed(text: str) -> int:
    say(f"tplaudit: {text}")
    return 2


_ended: list[int] = []


def _terminate(number: int, frame: FrameType | None) -> None:
    _ended.append(number)
    raise Terminated


if __name__ == "__main__":
    main()
