"""The signature file of a model's behaviour, small enough to be checked in.

`tplaudit.lock` is JSON: what became of every placement, every verdict on reasoning, and a hash of every
prompt. It has no texts, so a comparison says which conversations changed, and not how.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ... import __version__
from ..documents import typed
from ..errors import InputError
from ..placements.mid_system import PlacementReport
from ..placements.placements import FURTHER, PLAIN
from ..placements.verdicts import Verdict
from .compare.compare_placements import verdict
from .observe.behaviour import CLOCK, Behaviour, FollowedFinding, View, by_placement
from .observe.prompts import PromptOutline
from .observe.shapes import SHAPES, VERSION
from .observe.view_prompts import Switched
from .rules import FOLLOWED
from .subject import Subject, read_subject

SCHEMA = "tplaudit.lock/1"
#: Where a signature is written unless a person says otherwise.
DEFAULT_FILE = Path("tplaudit.lock")

_ROWS = by_placement(
    PlacementReport(
        case.preceding, case.placement, case.leading, case.role, case.tools, case.shape, {}, "in-place"
    )
    for case in PLAIN + FURTHER
)
_CONVERSATIONS = frozenset(shape.subject() for shape in SHAPES)


@dataclass(frozen=True, slots=True)
class LockedModel:
    """What else of a model its prompts depend on: all its special tokens, and its type."""

    special_tokens: Mapping[str, str]
    model_type: str | None


@dataclass(frozen=True, slots=True)
class Lock:
    """What a signature file says.

    Attributes:
        behaviour: what the model's templates did.
        kwargs: chat-template kwargs of all renders.
        special_tokens: special tokens that were given, apart from the model's own.
        now: the clock that the templates saw.
        model: what else there was of the model; None for a signature of a tplaudit that did not note it.
        tplaudit: the version that observed the model.
        path: the file; None for what was observed just now.
    """

    behaviour: Behaviour
    kwargs: Mapping[str, Any]
    special_tokens: Mapping[str, str]
    now: datetime
    model: LockedModel | None = None
    tplaudit: str = __version__
    path: Path | None = None

    def renewal(self, model: str | None = None) -> str:
        """Return the command that writes the signature anew, of the same model or of another source."""
        source = model or self.behaviour.source
        return _command(source, self.kwargs, self.special_tokens, self.now.isoformat(), self.path)


def _command(
    source: str,
    kwargs: Mapping[str, Any],
    special_tokens: Mapping[str, str],
    now: str | None,
    path: Path | None,
) -> str:
    words = ["tplaudit", "lock", source]
    if path not in (None, DEFAULT_FILE):
        words += ["--file", str(path)]
    for name, value in kwargs.items():
        words += ["--kwargs", f"{name}={json.dumps(value, ensure_ascii=False)}"]
    for name, token in special_tokens.items():
        words += ["--special-token", f"{name}={token}"]
    if now not in (None, CLOCK.isoformat()):
        words += ["--now", str(now)]
    return shlex.join(words)


def to_text(locked: Lock) -> str:
    """Write a signature file: JSON, one line for each thing, so that two of them can be compared by eye."""
    behaviour = locked.behaviour
    head = {
        "schema": SCHEMA,
        "tplaudit": __version__,
        "shapes": VERSION,
        "source": behaviour.source,
        "kwargs": locked.kwargs,
        "special_tokens": locked.special_tokens,
        "now": locked.now.isoformat(),
        "model": locked.model and dataclasses.asdict(locked.model),
        "variants": [list(variant) for variant in behaviour.variants],
        "templates": behaviour.digests,
    }
    views = {
        name: {
            "placements": {str(subject): verdict(row) for subject, row in view.placements.items()},
            "thinking": {
                str(subject).removeprefix("thinking/"): found for subject, found in view.thinking.items()
            },
            "findings": {str(finding): None for finding in view.findings},
            "prompts": dict(_prompts(view.prompts)),
        }
        for name, view in behaviour.views.items()
    }
    return "".join(_lines({**head, "views": views})) + "\n"


def _prompts(prompts: Mapping[Subject, tuple[PromptOutline, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the prompts; none that is what the same request gets without a switch."""
    for subject, turns in prompts.items():
        usual = prompts[subject.usual]
        if turns is usual or turns[-1].digest != usual[-1].digest:
            yield str(subject), [_prompt(turn) for turn in turns]


def _prompt(prompt: PromptOutline) -> list[Any] | None:
    """Write a prompt: None where the template raised, else its hashes and, where it has any, its faults."""
    if not prompt.rendered:
        return None
    faults: dict[str, Any] = {}
    if prompt.lost:
        faults["lost"] = list(prompt.lost)
    if prompt.disordered:
        faults["disordered"] = True
    if prompt.appended is False:
        faults["rewritten"] = True
    return [prompt.digest, prompt.body, *([faults] if faults else [])]


class _Faults(msgspec.Struct, frozen=True):
    """What is wrong with a prompt."""

    lost: tuple[int, ...] = ()
    disordered: bool = False
    rewritten: bool = False


class _Prompt(msgspec.Struct, frozen=True, array_like=True):
    """A prompt that was rendered."""

    digest: str
    body: str | None
    faults: _Faults = _Faults()


class _LockedView(msgspec.Struct, frozen=True):
    """What one template text does."""

    placements: dict[str, Verdict]
    thinking: dict[str, str]
    findings: dict[str, None]
    prompts: dict[str, tuple[_Prompt | None, ...]]


class _LockHeader(msgspec.Struct, frozen=True):
    """What every version of the file says: who wrote it, and of what."""

    schema: str
    source: str
    tplaudit: str | None = None
    shapes: int | None = None
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    special_tokens: dict[str, str] = msgspec.field(default_factory=dict)
    now: str | None = None


class _File(msgspec.Struct, frozen=True):
    """The whole file, as this version writes it."""

    tplaudit: str
    source: str
    kwargs: dict[str, Any]
    special_tokens: dict[str, str]
    now: str
    variants: tuple[Switched, ...]
    templates: dict[str, str]
    views: dict[str, _LockedView]
    model: LockedModel | None = None


def read_lock(path: Path) -> Lock:
    """Read a signature file.

    Raises:
        InputError: it cannot be read, is none, or was written with other conversations.
    """
    where, again = str(path), "write it anew with `tplaudit lock MODEL`"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        header = msgspec.convert(value, _LockHeader)
    except OSError as error:
        raise InputError((error.strerror or "cannot be read").lower(), where=where, fix=again) from None
    except (ValueError, RecursionError):
        raise InputError("not a signature file", where=where, fix=again) from None
    family, _, _ = SCHEMA.partition("/")
    if not header.schema.startswith(f"{family}/"):
        raise InputError("not a signature file", where=where, fix=again)
    renewal = _command(header.source, header.kwargs, header.special_tokens, header.now, path)
    again = f"write it anew: {renewal}"
    writer = f"written by tplaudit {header.tplaudit}"
    if header.schema != SCHEMA:
        what = f"{writer} as {header.schema}, of which tplaudit {__version__} knows only {SCHEMA}"
        raise InputError(what, where=where, fix=again)
    if header.shapes != VERSION:
        raise InputError(f"{writer}, which rendered other conversations", where=where, fix=again)
    where = f"{path}, which is a broken signature file"
    file = typed(value, _File, where, again)
    try:
        return _lock(file, path)
    except ValueError as error:
        raise InputError(str(error), where=where, fix=again) from None


def _lock(file: _File, path: Path) -> Lock:
    """Return what a file says. Raises ValueError where it names something that does not exist."""
    views = {name: _view(view) for name, view in file.views.items()}
    behaviour = Behaviour(file.source, file.templates, views, file.variants)
    now = datetime.fromisoformat(file.now)
    return Lock(behaviour, file.kwargs, file.special_tokens, now, file.model, file.tplaudit, path)


def _view(view: _LockedView) -> View:
    return View(
        {read_subject(name): _row(name, found) for name, found in view.placements.items()},
        {read_subject(f"thinking/{name}"): found for name, found in view.thinking.items()},
        {
            _conversation(name): tuple(_outline(turn, number) for number, turn in enumerate(turns))
            for name, turns in view.prompts.items()
        },
        findings=dict.fromkeys(map(_finding, view.findings)),
    )


def _row(name: str, found: Verdict) -> PlacementReport:
    usual = read_subject(name).usual
    if usual not in _ROWS:
        raise ValueError(f"there is no placement {name}")
    return dataclasses.replace(_ROWS[usual], verdict=found)


def _conversation(name: str) -> Subject:
    subject = read_subject(name)
    if subject.usual not in _CONVERSATIONS:
        raise ValueError(f"there is no conversation {name}")
    return subject


def _finding(name: str) -> FollowedFinding:
    rule, _, server = name.partition(" ")
    if rule not in FOLLOWED:
        raise ValueError(f"there is no finding {rule}")
    return FollowedFinding(rule, server)


def _outline(turn: _Prompt | None, number: int) -> PromptOutline:
    if turn is None:
        return PromptOutline(None, error="the template raised")
    faults = turn.faults
    return PromptOutline(
        turn.digest,
        turn.body,
        lost=faults.lost,
        disordered=faults.disordered,
        appended=not faults.rewritten if number else None,
    )


def _lines(value: Any, depth: int = 0) -> Iterator[str]:
    """Write JSON with one line for each entry of an object, and whatever is no object on one line."""
    if not isinstance(value, Mapping) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    indent = "  " * (depth + 1)
    yield "{\n"
    for number, (key, item) in enumerate(value.items(), 1):
        yield f"{indent}{json.dumps(key, ensure_ascii=False)}: "
        yield from _lines(item, depth + 1)
        yield ",\n" if number < len(value) else "\n"
    yield f"{'  ' * depth}}}"
