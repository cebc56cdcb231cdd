"""Finding a model's chat template and special tokens in its files, by transformers' precedence.

Source: `PreTrainedTokenizerBase.from_pretrained` of huggingface/transformers 5.24. In a model directory
`chat_template.jinja` and `additional_chat_templates/*.jinja` come before the `chat_template` of
`tokenizer_config.json`, which is a text or a list of named templates.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...fixtures import DEFAULT_MODEL
from ..errors import InputError, RenderError
from ..files import read_json, read_stream, read_text, unreadable
from ..templates.template import ChatTemplate
from ..tokenization.special_tokens import named_special_tokens
from .bundled import bundled_model

#: What a bare template gets, since it brings no tokens of its own.
BARE_TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}
#: Endings of files that are meant as templates, even where there is no Jinja in them.
TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
_JINJA = re.compile(r"\{[{%#]")
#: What a transcript's first object has one of.
_OF_TRANSCRIPTS = frozenset(
    {"messages", "role", "input", "requests", "request", "params", "body", "tools", "now", "dialect"}
)


def load_template(
    name: str | Path,
    *,
    special_tokens: Mapping[str, str] | None = None,
    **options: Any,
) -> ChatTemplate:
    """Load a chat template.

    Args:
        name: a model directory, a `.jinja` file, a `tokenizer_config.json`, a GGUF file, `-` for a template
            on stdin, a bundled model's name (bundled.py) or a model's id on the hub (hub.py), where there is
            no such file or directory. A Path is always a path.
        special_tokens: laid over the model's own.
        **options: passed on to ChatTemplate.

    Raises:
        InputError: there is no template there, a file cannot be read, or the hub does not give it.
        UsageError: there is no bundled model of that kind.
    """
    try:
        texts, tokens, path, fix = _find(name)
    except OSError as error:
        raise unreadable(error, str(name)) from None
    if not texts:
        raise InputError("no chat template here", where=str(name), fix=fix)
    return ChatTemplate(
        texts, source=str(name), path=path, special_tokens=tokens | dict(special_tokens or {}), **options
    )


def _find(name: str | Path) -> tuple[dict[str, str], dict[str, str], Path | None, str]:
    """Return templates, special tokens and where they were, and what to do where there are no templates."""
    path = Path(name)
    bundled = bundled_model(name) if isinstance(name, str) else None
    name = str(name)
    fix = "give a model directory with chat_template.jinja or tokenizer_config.json, or a .jinja file"
    if name == "-":
        return {"default": _template(read_stream(sys.stdin.buffer, "-"), path)}, dict(BARE_TOKENS), None, fix
    if bundled:
        return *_from_directory(DEFAULT_MODEL), bundled, fix
    if path.is_dir():
        return *_from_directory(path), path, fix
    if path.suffix == ".json":
        config = read_json(path)
        if "chat_template" not in config:
            _refuse_transcript(config, path)
        return _from_config(config, path), named_special_tokens(config), path, fix
    if path.suffix == ".gguf" or _is_gguf(path):
        from .gguf import read_gguf

        texts, tokens = read_gguf(path)
        fix = "give the .jinja file or the directory of the model that it was converted from"
        return texts, tokens or dict(BARE_TOKENS), path, fix
    if (directory := _from_hub(path, name)) is not None:
        fix = "name the model that it was made from, or download its GGUF file if it has one and give that"
        return *_from_directory(directory), directory, fix
    return {"default": _template(read_text(path), path)}, dict(BARE_TOKENS), path, fix


def _template(text: str, path: Path) -> str:
    """Return a text that is to be a template. Raises InputError where it plainly is something else."""
    for part in (text, text.lstrip().partition("\n")[0]):
        try:
            _refuse_transcript(json.loads(part.removeprefix("\ufeff")), path)
        except (ValueError, RecursionError):
            continue
    if text.strip() and not _JINJA.search(text) and path.suffix not in TEMPLATE_SUFFIXES:
        what = "there is no Jinja in it, so it is not a chat template"
        raise InputError(what, where=str(path), fix="give a .jinja file or a model directory")
    return text


def _refuse_transcript(value: Any, path: Path) -> None:
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and not _OF_TRANSCRIPTS.isdisjoint(first):
        fix = "give a template here, and the transcript to `tplaudit replay` or `tplaudit render`"
        raise InputError("this is a transcript, not a chat template", where=str(path), fix=fix)


def _is_gguf(path: Path) -> bool:
    """Tell a GGUF file by how it begins, since some stores of models name a file by its hash."""
    if not path.is_file():  # a pipe could not be read again
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _from_hub(path: Path, name: str) -> Path | None:
    """Return the directory of what the hub gave, or None where the name cannot be an id."""
    if path.exists():
        return None
    from .hub import is_hub_id, template_snapshot

    return template_snapshot(name) if is_hub_id(name) else None


def _from_directory(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    texts: dict[str, str] = {}
    if (path / "chat_template.jinja").is_file():
        texts["default"] = read_text(path / "chat_template.jinja")
    for file in sorted(path.glob("additional_chat_templates/*.jinja")):
        texts[file.stem] = read_text(file)
    config_path, tokens_path = path / "tokenizer_config.json", path / "special_tokens_map.json"
    config = read_json(config_path) if config_path.is_file() else {}
    tokens = named_special_tokens(config)
    # The older file: it is read only beside a configuration without the newer way to say the same.
    if "added_tokens_decoder" not in config and tokens_path.is_file():
        tokens |= named_special_tokens(read_json(tokens_path))
    if not config and not tokens:
        tokens = dict(BARE_TOKENS)
    return texts or _from_config(config, config_path), tokens


def _from_config(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the named templates of a tokenizer_config.json; empty where it has none."""
    template = config.get("chat_template")
    if template is None:
        return {}
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, list) and all(isinstance(entry, dict) for entry in template):
        template = {entry.get("name"): entry.get("template") for entry in template}
    if isinstance(template, dict) and all(
        isinstance(part, str) for pair in template.items() for part in pair
    ):
        return dict(template)
    raise InputError(
        "chat_template is neither a text nor a list of named templates",
        where=str(path),
        fix="repair the file or give the template as a .jinja file",
    )


def check_compiles(template: ChatTemplate) -> None:
    """Raise InputError where a template is not valid Jinja or has no default."""
    try:
        template.choose(None)
        for source in template.sources.values():
            source.check()
    except RenderError as error:
        where = f"{template.source}:{error.line}" if error.line else template.source
        raise InputError(
            f"not a valid chat template ({error.message})", where=where, fix="repair the template"
        ) from error


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
