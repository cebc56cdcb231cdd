"""The signature of a model's behaviour, small enough to be checked in, and its comparison with a model.

`tplaudit.lock` is JSON: what became of every placement, every verdict on reasoning, and a hash of every
prompt. It has no texts, so a comparison says which conversations changed, and not how. llama.cpp's engine has
no part in it: whether that is installed is not the template's doing.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from ... import __version__
from ..errors import InputError
from ..models.template_files import model_type
from ..placements.mid_system import PlacementReport
from ..placements.placements import FURTHER, PLAIN
from ..placements.verdicts import Verdict
from ..templates.template import ChatTemplate
from .compare.compare import compare
from .compare.compare_placements import placement_id, variant_id, verdict
from .gate import Gate, base_side, judge
from .observe.behaviour import CLOCK, RAW, Behaviour, Observing, Variant, View, observe, variants_of
from .observe.prompts import PromptOutline
from .observe.shapes import VERSION
from .report import Change, GateReport
from .rules import FOLLOWED
from .settings import GateSettings
from .sources import load_side

SCHEMA = "tplaudit.lock/1"
#: Where a signature is written unless a person says otherwise.
DEFAULT_FILE = Path("tplaudit.lock")

_ROWS = {
    placement_id(row): row
    for row in (
        PlacementReport(
            case.preceding, case.placement, case.leading, case.role, case.tools, case.shape, {}, "in-place"
        )
        for case in PLAIN + FURTHER
    )
}


@dataclass(frozen=True, slots=True)
class Lock:
    """What a signature file says.

    Attributes:
        behaviour: what the model's templates did.
        kwargs: chat-template kwargs of all renders.
        special_tokens: special tokens that were given besides the model's own.
        now: the clock that the templates saw.
        model: what else of the model has a part in what the templates do: all special tokens and the model's
            type; None for a signature of a tplaudit that did not note it.
        tplaudit: the version that observed the model.
        path: the file; None for what was observed just now.
    """

    behaviour: Behaviour
    kwargs: Mapping[str, Any]
    special_tokens: Mapping[str, str]
    now: datetime
    model: Mapping[str, Any] | None = None
    tplaudit: str = __version__
    path: Path | None = None

    def renewal(self, model: str | None = None) -> str:
        """Return the command that writes the signature anew, of the same model or of another source."""
        options = {
            "source": model or self.behaviour.source,
            "kwargs": self.kwargs,
            "special_tokens": self.special_tokens,
            "now": self.now.isoformat(),
        }
        return _renewal(options, self.path)


def lock(
    model: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    special_tokens: Mapping[str, str] | None = None,
    now: datetime = CLOCK,
) -> Lock:
    """Observe a model's templates.

    Args:
        model: anything that the gate takes.
        kwargs: chat-template kwargs of all renders.
        special_tokens: laid over the model's own.
        now: the clock that templates see.

    Raises:
        InputError: there is no template, or not a valid one.
    """
    with ExitStack() as keep:
        template = load_side(model, special_tokens, keep=keep)
        given = dict(kwargs or {})
        behaviour = observe(template, variants_of(template, given), Observing(given, now))
        return Lock(behaviour, given, dict(special_tokens or {}), now, _model(template))


def check_lock(locked: Lock, model: str | None = None) -> GateReport:
    """Compare a model with its signature; any change of behaviour fails, an improvement too.

    Args:
        locked: the signature.
        model: the model; None for the one that the signature names.

    Raises:
        InputError: there is no template, or not a valid one; or tplaudit itself observes the same model in
            another way now, so that the signature says nothing.
    """
    name = model or locked.behaviour.source
    with ExitStack() as keep:
        template = load_side(name, locked.special_tokens, keep=keep)
        variants = tuple(dict.fromkeys((*locked.behaviour.variants, *variants_of(template, locked.kwargs))))
        head = observe(template, variants, Observing(locked.kwargs, locked.now))
        known = _model(template)
    gate = Gate(GateSettings(base=locked.behaviour.source, head=name))
    sides = (base_side(locked.behaviour), base_side(head))
    report = judge(gate, sides, compare(locked.behaviour, head))
    same = report.outcome in ("unchanged", "cosmetic")
    if not same and locked.behaviour.digests == head.digests and locked.model in (None, known):
        raise InputError(_judged_otherwise(locked), where=name, fix=f"write it anew: {locked.renewal(model)}")
    notes = [*report.notes, *_differing(locked.model or known, known)]
    if not same:
        notes.append(f"{locked.renewal(model)} writes the signature anew, where this is meant")
    return dataclasses.replace(
        report,
        verdict="pass" if same else "fail",
        changes=tuple(map(_failing, report.changes)),
        notes=tuple(notes),
        against="signature",
        allow=(),
    )


def _failing(change: Change) -> Change:
    return change if change.kind == "cosmetic" else dataclasses.replace(change, severity="error")


def _model(template: ChatTemplate) -> dict[str, Any]:
    return {"special_tokens": dict(template.special_tokens), "model_type": model_type(template)}


def _judged_otherwise(locked: Lock) -> str:
    """Say why a signature does not fit templates that are the locked ones."""
    if locked.model is None:
        return (
            "the templates are those that were locked, but do not fit the signature of tplaudit "
            f"{locked.tplaudit}: the model's special tokens changed, or what tplaudit observes"
        )
    return (
        f"the model is the one that was locked, but tplaudit {__version__} observes it in another way than "
        f"tplaudit {locked.tplaudit}, which wrote the signature"
    )


def _differing(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Say what else of the model is another than when it was locked."""
    if was["model_type"] != now["model_type"]:
        yield f"the model's type was {was['model_type']} and is now {now['model_type']}"
    before, after = was["special_tokens"], now["special_tokens"]
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"the special token {name} was {before.get(name)!r} and is now {after.get(name)!r}"


def _renewal(value: Mapping[str, Any], path: Path | None) -> str:
    """Return the command that writes a signature anew, as far as a file tells how it was written."""
    words = ["tplaudit", "lock", str(value.get("source") or "MODEL")]
    if path not in (None, DEFAULT_FILE):
        words += ["--file", str(path)]
    for option, key in (("--kwargs", "kwargs"), ("--special-token", "special_tokens")):
        given = value.get(key)
        for name, item in given.items() if isinstance(given, Mapping) else ():
            text = item if key == "special_tokens" else json.dumps(item, ensure_ascii=False)
            words += [option, f"{name}={text}"]
    now = value.get("now")
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
        "model": locked.model,
        "variants": [list(variant) for variant in behaviour.variants],
        "templates": behaviour.digests,
    }
    views = {
        name: {
            "placements": dict(_placements(view.placements)),
            "thinking": view.thinking,
            "findings": {name: None for name in view.findings},
            "prompts": dict(_prompts(view.prompts)),
        }
        for name, view in behaviour.views.items()
    }
    return "".join(_lines({**head, "views": views})) + "\n"


def read_lock(path: Path) -> Lock:
    """Read a signature file.

    Raises:
        InputError: it cannot be read, is none, or was written with other conversations.
    """
    where, again = str(path), "write it anew with `tplaudit lock MODEL`"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError((error.strerror or "cannot be read").lower(), where=where, fix=again) from None
    except (ValueError, RecursionError):
        raise InputError("not a signature file", where=where, fix=again) from None
    schema = str(value.get("schema")) if isinstance(value, dict) else ""
    if not schema.startswith(SCHEMA.partition("/")[0] + "/"):
        raise InputError("not a signature file", where=where, fix=again)
    again = f"write it anew: {_renewal(value, path)}"
    writer = f"written by tplaudit {value.get('tplaudit')}"
    if schema != SCHEMA:
        what = f"{writer} as {schema}, of which tplaudit {__version__} knows only {SCHEMA}"
        raise InputError(what, where=where, fix=again)
    if value.get("shapes") != VERSION:
        raise InputError(f"{writer}, which rendered other conversations", where=where, fix=again)
    try:
        return dataclasses.replace(_lock(value), path=path)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError("a broken signature file", where=where, fix=again) from None


def _placements(rows: Sequence[PlacementReport]) -> Iterator[tuple[str, str]]:
    for row in rows:
        variant = variant_id(row)
        yield f"{placement_id(row)}@{variant}" if variant else placement_id(row), verdict(row)


def _prompts(prompts: Mapping[str, tuple[PromptOutline, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the prompts; none that is what the same request gets without a switch."""
    for subject, turns in prompts.items():
        plain = prompts[subject.partition("@")[0]]
        if turns is plain or turns[-1].digest != plain[-1].digest:
            yield subject, [_prompt(turn) for turn in turns]


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


def _lock(value: Mapping[str, Any]) -> Lock:
    variants = tuple(_variant(name, choice) for name, choice in value["variants"])
    views = {str(name): _view(view) for name, view in value["views"].items()}
    behaviour = Behaviour(str(value["source"]), dict(value["templates"]), views, variants)
    now = datetime.fromisoformat(value["now"])
    model = value.get("model")
    return Lock(
        behaviour,
        dict(value["kwargs"]),
        dict(value["special_tokens"]),
        now,
        None
        if model is None
        else {"special_tokens": dict(model["special_tokens"]), "model_type": model["model_type"]},
        str(value["tplaudit"]),
    )


def _view(value: Mapping[str, Any]) -> View:
    rows = tuple(_row(name, found) for name, found in value["placements"].items())
    prompts = {
        str(subject): tuple(_read_prompt(turn, number) for number, turn in enumerate(turns))
        for subject, turns in value["prompts"].items()
    }
    thinking = {str(name): _text(verdict) for name, verdict in value["thinking"].items()}
    findings = dict.fromkeys(value["findings"])
    if not all(name.partition(" ")[0] in FOLLOWED for name in findings):
        raise ValueError("an unknown finding")
    return View(rows, thinking, prompts, findings=findings)


def _variant(name: Any, choice: Any) -> Variant:
    if not isinstance(choice, bool | str):
        raise TypeError("no value of a switch")
    return _text(name), choice


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _row(name: str, found: Any) -> PlacementReport:
    place, _, variant = name.partition("@")
    if found not in get_args(Verdict):
        raise ValueError("an unknown verdict")
    row = dataclasses.replace(_ROWS[place], verdict=found)
    if not variant:
        return row
    if variant == RAW:
        return dataclasses.replace(row, profile="raw")
    switch, _, choice = variant.partition("=")
    return dataclasses.replace(row, kwargs={switch: {"true": True, "false": False}.get(choice, choice)})


def _read_prompt(turn: Any, number: int) -> PromptOutline:
    if turn is None:
        return PromptOutline(None, error="the template raised")
    digest, body, *rest = turn
    faults: Any = rest[0] if rest else {}
    appended = None if not number else not faults.get("rewritten", False)
    return PromptOutline(
        _text(digest),
        None if body is None else _text(body),
        lost=tuple(map(int, faults.get("lost", ()))),
        disordered=bool(faults.get("disordered")),
        appended=appended,
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
