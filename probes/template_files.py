"""Finding a model's chat template and special tokens in its files, by transformers' precedence.

Source: `PreTrainedTokenizerBase.from_pretrained` of huggingface/transformers 5.24. In a model directory
`chat_template.jinja` and `additional_chat_templates/*.jinja` come before the `chat_template` of
`tokenizer_config.json`, which is a text or a list of named templates.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import InputError
from .template import ChatTemplate

SPECIAL_TOKEN_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
#: What a bare template gets, since it brings no tokens of its own.
BARE_TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}
_MAX_BYTES = 20_000_000


def load_template(
    name: str | Path,
    *,
    special_tokens: Mapping[str, str] | None = None,
    **options: Any,
) -> ChatTemplate:
    """Load a chat template.

    Args:
        name: a model directory, a `.jinja` file, a `tokenizer_config.json`, or `-` for a template on stdin.
        special_tokens: laid over the model's own.
        **options: passed on to ChatTemplate.

    Raises:
        InputError: there is no template there, or a file cannot be read.
    """
    path = Path(name)
    if str(name) == "-":
        texts, tokens = {"default": sys.stdin.read()}, dict(BARE_TOKENS)
    elif path.is_dir():
        texts, tokens = _from_directory(path)
    elif path.suffix == ".json":
        config = read_json(path)
        texts, tokens = _from_config(config, path), tokens_of(config)
    else:
        texts, tokens = {"default": read_text(path)}, dict(BARE_TOKENS)
    if not texts:
        raise InputError(
            "no chat template here",
            where=str(name),
            fix="give a model directory with chat_template.jinja or tokenizer_config.json, or a .jinja file",
        )
    return ChatTemplate(
        texts, source=str(name), special_tokens=tokens | dict(special_tokens or {}), **options
    )


def _from_directory(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    texts: dict[str, str] = {}
    if (path / "chat_template.jinja").is_file():
        texts["default"] = read_text(path / "chat_template.jinja")
    for file in sorted(path.glob("additional_chat_templates/*.jinja")):
        texts[file.stem] = read_text(file)
    tokens: dict[str, str] = {}
    config_path = path / "tokenizer_config.json"
    if (path / "special_tokens_map.json").is_file():
        tokens |= tokens_of(read_json(path / "special_tokens_map.json"))
    if config_path.is_file():
        config = read_json(config_path)
        tokens |= tokens_of(config)
        texts = texts or _from_config(config, config_path)
    elif texts and not tokens:
        tokens = dict(BARE_TOKENS)
    return texts, tokens


def _from_config(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the named templates of a tokenizer_config.json; empty where it has none."""
    template = config.get("chat_template")
    if template is None:
        return {}
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, list) and all(isinstance(entry, dict) for entry in template):
        named = {entry.get("name"): entry.get("template") for entry in template}
        if all(isinstance(key, str) and isinstance(text, str) for key, text in named.items()):
            return {str(key): str(text) for key, text in named.items()}
    raise InputError(
        "chat_template is neither a text nor a list of named templates",
        where=str(path),
        fix="repair the file or give the template as a .jinja file",
    )


def tokens_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer_config.json or special_tokens_map.json names."""
    tokens = {}
    for name in SPECIAL_TOKEN_NAMES:
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def read_text(path: Path) -> str:
    """Read a text file that a model brings.

    Raises:
        InputError: it is missing, unreadable, absurdly large or not UTF-8 text.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError("too large to be a template or configuration", where=str(path))
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(
            "not UTF-8 text", where=str(path), fix="give a template or a model directory"
        ) from None
    except OSError as error:
        raise InputError(
            (error.strerror or "cannot be read").lower(), where=str(path), fix="check the path"
        ) from None
    if "\0" in text:
        raise InputError("a binary file, not a template", where=str(path), fix="give a .jinja file")
    return text


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises:
        InputError: as `read_text`, or it is not a JSON object.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(
            f"not valid JSON ({getattr(error, 'msg', 'nested too deeply')})",
            where=f"{path}:{line}" if line else str(path),
            fix="repair or download the file again",
        ) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=str(path), fix="repair or download the file again")
    return value
