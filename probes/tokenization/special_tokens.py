"""The special tokens that stand in a prompt, told from markup that people wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
