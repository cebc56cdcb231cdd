"""Observing a model for a signature file, and comparing a model with its signature.

llama.cpp's engine has no part in a signature: whether that is installed is not the template's doing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from ... import __version__
from ..errors import InputError
from ..models.template_files import model_type
from ..templates.template import ChatTemplate
from .compare.compare import compare
from .gate import Gate, base_side, judge
from .lock_file import Lock, LockedModel
from .observe.behaviour import CLOCK, Observing, observe, variants_of
from .report import GateReport
from .settings import GateSettings
from .sources import load_side


def lock(
    model: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    special_tokens: Mapping[str, str] | None = None,
    now: datetime = CLOCK,
) -> Lock:
    """Observe a model's templates.

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
        raise InputError(
            _judged_differently(locked), where=name, fix=f"write it anew: {locked.renewal(model)}"
        )
    notes = [*report.notes, *_differing(locked.model or known, known)]
    if not same:
        notes.append(f"{locked.renewal(model)} writes the signature anew, where this is meant")
    return dataclasses.replace(
        report,
        verdict="pass" if same else "fail",
        changes=tuple(
            change if change.kind == "cosmetic" else dataclasses.replace(change, severity="error")
            for change in report.changes
        ),
        notes=tuple(notes),
        against="signature",
        allow=(),
    )


def _model(template: ChatTemplate) -> LockedModel:
    return LockedModel(dict(template.special_tokens), model_type(template))


def _judged_differently(locked: Lock) -> str:
    if locked.model is None:
        return (
            "the templates are those that were locked, but do not fit the signature of tplaudit "
            f"{locked.tplaudit}: the model's special tokens changed, or what tplaudit observes"
        )
    return (
        f"the model is the one that was locked, but tplaudit {__version__} observes it in another way than "
        f"tplaudit {locked.tplaudit}, which wrote the signature"
    )


def _differing(was: LockedModel, now: LockedModel) -> Iterator[str]:
    if was.model_type != now.model_type:
        yield f"the model's type was {was.model_type} and is now {now.model_type}"
    before, after = was.special_tokens, now.special_tokens
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"the special token {name} was {before.get(name)!r} and is now {after.get(name)!r}"
