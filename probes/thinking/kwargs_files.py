"""Reading oMLX's model settings and one request body, for the merge of their chat-template kwargs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..conversation import Request
from ..errors import InputError
from ..files import read_text
from ..policies.servers.omlx_kwargs import ModelSettings
from ..transcripts.json_text import kind, parse_object
from ..transcripts.record import Earlier, read_record

_BOOLEAN, _INTEGER, _OBJECT, _TEXT = "true or false", "an integer", "an object", "a string"
_TYPES: Mapping[str, type] = {_BOOLEAN: bool, _INTEGER: int, _OBJECT: dict, _TEXT: str}
_KEYS_OF_REQUESTS = frozenset({"messages", "chat_template_kwargs", "reasoning_effort", "thinking_budget"})


@dataclass(frozen=True, slots=True)
class KwargsRequest:
    """What a request brings to the merge.

    Attributes:
        kwargs: its `chat_template_kwargs`.
        reasoning_effort: its field of that name.
        thinking_budget: its budget in tokens.
        request: messages and tools, None where it has no messages.
        notes: what a person has to know about what was not read.
    """

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    request: Request | None = None
    notes: tuple[str, ...] = ()


def read_settings(path: str | Path, model_name: str | None = None) -> ModelSettings:
    """Read a model's settings: its own object, or a whole `model_settings.json` with `models`.

    Args:
        path: the file.
        model_name: which of several models is meant.

    Raises:
        InputError: the file cannot be read, a field has another type than the server takes, or it is not
            clear which model is meant.
    """
    where = str(path)
    document = parse_object(read_text(Path(path)), where)
    if isinstance(document.get("models"), dict):
        document, where = _model(document["models"], model_name, where)
    forced = document.get("forced_ct_kwargs")
    if forced is not None and not (isinstance(forced, list) and all(isinstance(key, str) for key in forced)):
        raise InputError(
            "forced_ct_kwargs is not a list of names", where=where, fix="write a list of strings"
        )
    return ModelSettings(
        chat_template_kwargs=_typed(document, "chat_template_kwargs", _OBJECT, where),
        enable_thinking=_typed(document, "enable_thinking", _BOOLEAN, where),
        preserve_thinking=_typed(document, "preserve_thinking", _BOOLEAN, where),
        forced_ct_kwargs=None if forced is None else tuple(forced),
        thinking_budget_enabled=_typed(document, "thinking_budget_enabled", _BOOLEAN, where),
        thinking_budget_tokens=_typed(document, "thinking_budget_tokens", _INTEGER, where),
        cache_reasoning_output=_typed(document, "cache_reasoning_output", _BOOLEAN, where),
    )


def _model(models: Mapping[str, Any], name: str | None, where: str) -> tuple[dict[str, Any], str]:
    chosen = name if name in models else next(iter(models)) if len(models) == 1 else None
    if chosen is None:
        known = ", ".join(sorted(models)[:5]) or "none"
        raise InputError(
            f"settings of several models ({known}), and it is not clear which one is meant"
            if models
            else "there is no model in it",
            where=where,
            fix="keep the settings of one model only, or name a model directory of that name",
        )
    settings = models[chosen]
    if not isinstance(settings, dict):
        raise InputError(
            f"the settings of {chosen!r} are {kind(settings)}", where=where, fix="write an object of settings"
        )
    return settings, f"{where}: {chosen}"


def read_request(path: str | Path) -> KwargsRequest:
    """Read one chat-completions request body, alone or under `body`.

    Raises:
        InputError: the file cannot be read, or a field has another type than the server takes.
    """
    where = str(path)
    body = parse_object(read_text(Path(path)), where)
    if "messages" not in body and isinstance(body.get("body"), dict):
        body = body["body"]
    notes = []
    if body and _KEYS_OF_REQUESTS.isdisjoint(body):
        notes.append("the request has none of the fields " + ", ".join(sorted(_KEYS_OF_REQUESTS)))
    if body.get("thinking") is not None:
        notes.append(
            "the request's field thinking belongs to the Anthropic route, whose merge is not shown here"
        )
    return KwargsRequest(
        kwargs=_typed(body, "chat_template_kwargs", _OBJECT, where) or {},
        reasoning_effort=_typed(body, "reasoning_effort", _TEXT, where),
        thinking_budget=_typed(body, "thinking_budget", _INTEGER, where),
        request=read_record(body, Earlier("openai-chat"), where) if "messages" in body else None,
        notes=tuple(notes),
    )


def _typed(document: Mapping[str, Any], key: str, wanted: str, where: str) -> Any:
    """Return a field that may be absent or null. Raises InputError where it has another type."""
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, _TYPES[wanted]) and (wanted == _BOOLEAN or not isinstance(value, bool)):
        return value
    raise InputError(
        f"{key} is {kind(value)}, not {wanted}", where=where, fix=f"write {wanted}, or leave it out"
    )
