"""A model's named special tokens, and those that stand in a prompt, told from markup that people wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..templates.template import ChatTemplate

_MARKUP = re.compile(r"<[|｜][^<>\n]{1,60}>|</?[\w:.\-]{1,40}>|\[/?[A-Z_]{2,40}\]")


def special_texts(prompts: Iterable[str], template: ChatTemplate) -> tuple[str, ...]:
    """Return the special tokens that stand in prompts, longest first.

    Those are the model's named special tokens, and what looks like a token and stands in the template's
    source as well. Tokens that a template puts together from parts are not known.
    """
    sources = [source.text for source in template.sources.values()]
    found: set[str] = set()
    for prompt in prompts:
        markup = set(_MARKUP.findall(prompt))
        found |= {text for text in markup if any(text in source for source in sources)}
        found |= {token for token in template.special_tokens.values() if token and token in prompt}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def named_special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the named special tokens of a tokenizer_config.json or special_tokens_map.json.

    Besides the standard ones these are a model's own: other keys that end in `_token`, and the keys of an
    `extra_special_tokens` dict.
    """
    extra = config.get("extra_special_tokens")
    named = {key: value for key, value in config.items() if key.endswith("_token")}
    named |= extra if isinstance(extra, dict) else {}
    tokens = {key: value.get("content") if isinstance(value, dict) else value for key, value in named.items()}
    return {key: value for key, value in tokens.items() if isinstance(value, str)}
