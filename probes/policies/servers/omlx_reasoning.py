"""What oMLX concludes about a model's reasoning, and whether it keeps the output of a reply that thinks.

Sources: `omlx/model_discovery.py`, `omlx/api/utils.py` and `omlx/scheduler.py` (docs/servers.md, sections
1.13 and 1.14; jundot/omlx#3525). How reasoning is handed over, `rewrite.reasoning` says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...files import read_json, read_text
from ...templates.template import ChatTemplate
from ..rewrite.reasoning import VERSIONS, is_native

#: What the server looks for in a template's text.
DETECTED_NAME = "preserve_thinking"


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


def native_reasoning(detected: bool | None, model_type: str | None, model_name: str) -> bool:
    """Tell whether the latest version hands history reasoning to the template as `reasoning_content`.

    Otherwise it writes it into the content, between think tags.
    """
    return is_native(
        version=VERSIONS[-1], model_type=model_type, model_name=model_name, detected=detected is True
    )


def output_cacheable(setting: bool | None, native: bool, preserve_thinking: Any) -> bool:
    """Tell whether the server caches the output tokens of a reply that thinks (as of the autumn of 2026)."""
    if setting is not None:
        return setting
    if preserve_thinking is False:
        return False
    return native or preserve_thinking is True
