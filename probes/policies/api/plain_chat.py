"""A request of another dialect in OpenAI chat form, by no server's rules.

Nothing is left out that chat messages have a place for: a billing header stays, reasoning goes to
`reasoning_content`, images become parts. Texts of neighbouring blocks are joined by a newline. System turns
stay where they stand. What policies without a server of their own do is done to the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...conversation import Request
from ..base import Prepared
from .anthropic_route import AnthropicRules
from .responses_route import ResponsesRules
from .routes import as_chat, body_settings, with_kwargs


def _document(block: Mapping[str, Any]) -> str | None:
    """Return the text of a document that is sent as text."""
    source = block.get("source")
    text = source.get("data") if isinstance(source, Mapping) and source.get("type") == "text" else None
    return text if isinstance(text, str) else None


_ANTHROPIC = AnthropicRules(reasoning="field", images=True, dropped_system=(), document=_document)
_RESPONSES = ResponsesRules(images=True)


def plain_chat(request: Request) -> Prepared:
    """Return a request in chat form, what its body sets for the template, and what was converted or lost."""
    return with_kwargs(as_chat(request, _ANTHROPIC, _RESPONSES), body_settings(request))
