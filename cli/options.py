"""Options that several commands share, and the reading of their values.

A command with several options declares them as the fields of a frozen dataclass, and is a function of one
value of it:

    @dataclass(frozen=True, slots=True)
    class RulesOptions:
        as_json: options.Json = False
        output: options.Output = None

    @options.taken_from(RulesOptions)
    def command(given: RulesOptions) -> None:
        ...
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..probes.errors import InputError, UsageError
from .output import check_output, say

if TYPE_CHECKING:
    from ..probes.cost import calibration

#: The panels that `--help` groups arguments and options in, as `rich_help_panel`.
INPUT = "Input"
SERVER = "Server"
CACHE = "Cache"
PREFILL = "Prefill"
OUTPUT = "Output"

OptionsT = TypeVar("OptionsT")


class FailOn(StrEnum):
    """The least severe finding that makes the exit code 1."""

    error = "error"
    warning = "warning"
    note = "note"
    never = "never"


def taken_from(
    kind: type[OptionsT],
) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Make a function of one options value a command with an option for each of its fields.

    Args:
        kind: a dataclass; typer reads the annotations and defaults of its fields.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(kind).parameters.items()
    ]

    def made(function: Callable[[OptionsT], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**values: Any) -> None:
            function(kind(**values))

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {name: hints[name] for name in hints}
        return command

    return made


def given(param: typer.CallbackParam, value: Any) -> Any:
    """Return a value or values unchanged. Raises UsageError where one is the name of an option."""
    for each in value if isinstance(value, list | tuple) else (value,):
        text = str(each)
        if re.match(r"--?[a-z]", text) and not Path(text).exists():
            option = _name(param)
            raise UsageError(
                f"its value is missing, and the option {text} follows",
                where=option,
                fix=f"write {option} VALUE",
            )
    return value


def finite(param: typer.CallbackParam, value: float | None) -> float | None:
    """Return a number as it is. Raises UsageError where it is infinite or not a number."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{value} is not a finite number", where=_name(param), fix="give another")
    return value


def group_size(param: typer.CallbackParam, value: int) -> int:
    """Return the size of a group that mlx can quantise. Raises UsageError where it is none."""
    if value not in (32, 64, 128):
        raise UsageError(
            f"mlx cannot quantise groups of {value}", where=_name(param), fix="give 32, 64 or 128"
        )
    return value


def named(param: typer.CallbackParam, value: Any) -> Any:
    """Return the name or names of files as they are. Raises UsageError where one is empty, or an option."""
    given(param, value)
    if value == "" or (isinstance(value, list | tuple) and "" in value):
        raise UsageError("the name is empty", where=_name(param), fix="give the name of a file")
    return value


def _name(param: typer.CallbackParam) -> str:
    option = param.opts[0]
    return option if option.startswith("-") else str(param.metavar or option).strip("[].")


def option(panel: str, help: str, *names: str, **more: Any) -> Any:
    """Declare an option."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def argument(metavar: str, help: str) -> Any:
    """Declare an argument that names a file or several, in the panel of inputs."""
    return typer.Argument(
        metavar=metavar, callback=named, help=help, show_default=False, rich_help_panel=INPUT
    )


def _writable(param: typer.CallbackParam, value: Path | None) -> Path | None:
    given(param, value)
    check_output(value)
    return value


Model = Annotated[
    str | None,
    option(
        INPUT,
        "A model directory, a .jinja, .gguf or tokenizer_config.json file, a hub id such as owner/name, "
        "- for a template on stdin, or bundled, bundled:hybrid or bundled:sliding-window for a tiny model. "
        "Default: bundled.",
        "--model",
        "-m",
        metavar="MODEL",
        callback=named,
    ),
]
Template = Annotated[
    str | None,
    option(INPUT, "A template that replaces the model's own.", "--template", metavar="FILE", callback=named),
]
Tokenizer = Annotated[
    str | None,
    option(
        INPUT,
        "A tokenizer.json, a directory, or one token per character.",
        "--tokenizer",
        metavar="PATH|characters",
        callback=named,
    ),
]
Policies = Annotated[
    list[str] | None,
    option(
        SERVER,
        "The server to imitate: what it does to the messages, and how it caches. Repeat it for several "
        "servers, or give all; for replay also auto: the one that agrees best with what was actually reused. "
        "Default: as-is and omlx.",
        "--policy",
        "-p",
        metavar="NAME[:OPTION=VALUE,…]",
        callback=given,
    ),
]
PolicyCode = Annotated[
    list[str] | None,
    option(
        SERVER,
        "A policy of your own: a function of (body, route, template) that returns (messages, tools, kwargs); "
        "it is run. cache=NAME says whose server's cache applies. Repeatable.",
        "--policy-code",
        metavar="FILE::FUNCTION[:OPTION=VALUE,…]",
        callback=given,
    ),
]
Kwargs = Annotated[
    list[str] | None,
    option(
        INPUT,
        "A chat-template kwarg, which overrides the request's own. VALUE is read as JSON, else as text. "
        "Repeatable.",
        "--kwargs",
        metavar="KEY=VALUE",
        callback=given,
    ),
]
SpecialTokens = Annotated[
    list[str] | None,
    option(
        INPUT,
        "The text of a special token, such as bos_token=<s>. Repeatable.",
        "--special-token",
        metavar="NAME=TEXT",
        callback=given,
    ),
]
Now = Annotated[
    str | None,
    option(
        INPUT,
        "The time for requests that do not have their own, such as 2026-11-30T09:00:00.",
        "--now",
        metavar="ISO",
        callback=given,
    ),
]
Json = Annotated[bool, option(OUTPUT, "Print one JSON document.", "--json")]
Output = Annotated[
    Path | None,
    option(
        OUTPUT, "Write to this file instead of stdout.", "--output", "-o", metavar="FILE", callback=_writable
    ),
]
PrefillRate = Annotated[
    float | None,
    option(
        PREFILL,
        "Predict seconds from this many tokens per second. Only where no model runs.",
        min=1,
        metavar="TOK_PER_S",
        callback=finite,
    ),
]
Calibration = Annotated[
    Path | None,
    option(
        PREFILL,
        "Predict seconds from a calibration of this or another machine. "
        "Default: what tplaudit calibrate measured of this model on this machine.",
        "--calibration",
        metavar="FILE",
        callback=given,
    ),
]
MaxMinutes = Annotated[
    float | None,
    option(
        PREFILL,
        "Stop the model after this time and report what it has done.",
        min=0.01,
        metavar="MINUTES",
        callback=finite,
    ),
]
KvBits = Annotated[
    int | None,
    option(
        PREFILL,
        "Quantise keys and values of full attention to 2 to 8 bits, as mlx-lm can.",
        min=2,
        max=8,
        metavar="BITS",
    ),
]
KvGroupSize = Annotated[
    int,
    option(
        PREFILL,
        "With --kv-bits, how many numbers share a scale. The width of a head must be a multiple of it.",
        metavar="32|64|128",
        callback=group_size,
    ),
]
TranscriptArgument = Annotated[str, argument("TRANSCRIPT", "A transcript file, or - for stdin.")]


@dataclass(frozen=True, slots=True)
class TranscriptOptions:
    """What the commands are given that take a transcript, a model and servers."""

    transcript: TranscriptArgument
    model: Model = None
    template: Template = None
    tokenizer: Tokenizer = None
    kwargs: Kwargs = None
    special_token: SpecialTokens = None
    now: Now = None
    policy: Policies = None
    policy_code: PolicyCode = None


Threshold = Annotated[
    FailOn,
    option(
        OUTPUT, "The least severe finding that makes the exit code 1.", "--fail-on", metavar="|".join(FailOn)
    ),
]


def read_kwargs(items: list[str] | None) -> dict[str, Any]:
    """Read `KEY=VALUE` items, each value as JSON or else as text.

    Raises:
        UsageError: an item has no key.
    """
    return {key: _json_or_text(value) for key, value in _pairs(items, "--kwargs")}


def read_special_tokens(items: list[str] | None) -> dict[str, str]:
    """Read `NAME=TEXT` items. Raises UsageError where an item has no name."""
    return dict(_pairs(items, "--special-token"))


def read_now(text: str | None) -> datetime | None:
    """Read an ISO 8601 date or time. Raises UsageError where it is none."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not an ISO 8601 time", where="--now", fix="write it like 2026-11-30T09:00:00"
        ) from None


def policy_names(given: list[str] | None, code: list[str] | None = None) -> list[str]:
    """Return the policies to run, each once.

    Args:
        given: those of `--policy`; `all` stands for every one, and others come after them.
        code: a person's own, of `--policy-code`.

    Raises:
        UsageError: `--policy` names code, which only the other option consents to run.
    """
    from ..probes.policies.own_code import FLAG, PREFIX
    from ..probes.policies.registry import DEFAULTS, names

    for name in given or ():
        if name.startswith(PREFIX):
            raise UsageError("code is run for the other option only", where="--policy", fix=f"use {FLAG}")
    own = [f"{PREFIX}{each}" for each in code or ()]
    if given and "all" in given:
        return list(dict.fromkeys([*names(), *(name for name in given if name != "all"), *own]))
    return list(dict.fromkeys([*(given or (() if own else DEFAULTS)), *own]))


def read_calibration(
    file: Path | None, identity: calibration.CalibratedModel | None
) -> calibration.Calibration | None:
    """Return what seconds are predicted from; None for nothing.

    Args:
        file: a calibration; None for that of the model on this machine, if there is one.
        identity: the model; None for none of its own.

    Raises:
        InputError: the file cannot be read.
    """
    from ..probes.cost import calibration

    if file is not None:
        return calibration.given_calibration(file)
    found = find_calibration(identity) if identity else None
    return found if found and found.points else None


def find_calibration(identity: calibration.CalibratedModel) -> calibration.Calibration | None:
    """Return what was measured of a model on this machine; None for nothing, or nothing that can be read."""
    from ..probes.cost import calibration

    try:
        return calibration.find_calibration(identity)
    except InputError as error:
        say(f"note: {error}")
        return None


def check_one_stdin(names: Sequence[str | None]) -> None:
    """See that stdin is not to be read twice. Raises UsageError where it is."""
    if names.count("-") > 1:
        raise UsageError("only one of them can be stdin", where="-", fix="give the path of a file")


def _pairs(items: list[str] | None, option: str) -> list[tuple[str, str]]:
    pairs = []
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{item!r} is not of the form KEY=VALUE", where=option, fix="write KEY=VALUE")
        pairs.append((key.strip(), value))
    return pairs


def _json_or_text(value: str) -> Any:
    try:
        found = json.loads(value)
    except RecursionError:
        raise UsageError("nested too deeply", where="--kwargs", fix="give a smaller VALUE") from None
    except ValueError:
        return value
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        raise UsageError(
            "NaN, Infinity and numbers beyond a float's range are not JSON",
            where="--kwargs",
            fix="give another VALUE, or a text in double quotes",
        ) from None
    return found


def read_size(text: str | None) -> int | None:
    """Read a size in bytes such as `512`, `64MB` or `2GiB`. Raises UsageError where it is none."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is not a size", where="--cache-bytes", fix="write it like 64MB or 2GiB")
    number, unit, binary = match.groups()
    size = float(number) * (1024 if binary else 1000) ** " kmgt".index(unit.lower() or " ")
    if size >= 2**63:
        raise UsageError("no cache is that large", where="--cache-bytes", fix="write it like 64MB or 2GiB")
    return int(size)
