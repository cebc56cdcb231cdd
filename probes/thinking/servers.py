"""What servers conclude about a template's reasoning, and what they then switch on.

Sources: oMLX's `omlx/model_discovery.py`, `omlx/api/utils.py` and `omlx/scheduler.py` (docs/servers.md,
sections 1.13 and 1.14; jundot/omlx#3525), llama.cpp's `common/jinja/caps.cpp` (docs/servers.md, section 9).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import read_json, read_text
from ..templates.template import ChatTemplate

#: What oMLX looks for in a template's text.
DETECTED_NAME = "preserve_thinking"
#: What llama.cpp sets unless `--no-reasoning-preserve` is given.
LLAMA_CPP_DEFAULTS: Mapping[str, bool] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}

_NATIVE_TYPES = frozenset(
    {"minimax_m3", "minimax_m3_vl", "inkling", "inkling_mm_model", "muse_glimmer", "k2_horizon"}
)


def detect_preserve_thinking(template: ChatTemplate) -> bool | None:
    """Return what oMLX's substring test concludes: True, or None. It never concludes False.

    The server reads `chat_template.jinja` where there is one, else `chat_template` of `tokenizer_config.json`
    where that is a text; a list of named templates it does not read.
    """
    text = _server_text(template)
    return True if text is not None and DETECTED_NAME in text else None


def _server_text(template: ChatTemplate) -> str | None:
    path = template.path
    with contextlib.suppress(InputError, OSError):
        if path is not None and path.is_dir():
            if (path / "chat_template.jinja").is_file():
                return read_text(path / "chat_template.jinja")
            return _text_of(read_json(path / "tokenizer_config.json"))
        if path is not None and path.suffix == ".json":
            return _text_of(read_json(path))
    return template.sources["default"].text if set(template.sources) == {"default"} else None


def _text_of(config: Mapping[str, Any]) -> str | None:
    text = config.get("chat_template")
    return text if isinstance(text, str) else None


def model_type(template: ChatTemplate) -> str | None:
    """Return `model_type` of the config.json beside a template, None where there is none."""
    path = template.path
    if path is None:
        return None
    directory = path if path.is_dir() else path.parent
    with contextlib.suppress(InputError, OSError):
        if (directory / "config.json").is_file():
            found = read_json(directory / "config.json").get("model_type")
            return found if isinstance(found, str) else None
    return None


def model_name(template: ChatTemplate) -> str:
    """Return the name of the model's directory, as far as the template's source tells it."""
    path = Path(template.source)
    return path.parent.name if path.name in ("chat_template.jinja", "tokenizer_config.json") else path.name


def native_reasoning(detected: bool | None, model_type: str | None, model_name: str) -> bool:
    """Tell whether oMLX hands history reasoning to the template as `reasoning_content`.

    Otherwise it writes it into the content, between think tags.

    Args:
        detected: what `detect_preserve_thinking` concludes.
        model_type: of the model's config.json.
        model_name: name of the model's directory.
    """
    name = model_name.lower()
    kind = model_type or ""
    return (
        detected is True
        or kind in _NATIVE_TYPES
        or kind.startswith("deepseek_v4")
        or ("minimax" in name and "m3" in name)
    )


def output_cacheable(setting: bool | None, native: bool, preserve_thinking: Any) -> bool:
    """Tell whether oMLX caches the output tokens of a reply that thinks (as of the autumn of 2026).

    Args:
        setting: the model setting `cache_reasoning_output`.
        native: whether reasoning is handed over natively.
        preserve_thinking: the merged kwarg, None where it is not set.
    """
    if setting is not None:
        return setting
    if preserve_thinking is False:
        return False
    return native or preserve_thinking is True
