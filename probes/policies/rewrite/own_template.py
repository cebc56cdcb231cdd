"""The model's template with something of the server's own before and behind it (`Request.template`)."""

from __future__ import annotations

from ...conversation import Request
from ...errors import RenderError
from ...templates.template import ChatTemplate


def extended(template: ChatTemplate, request: Request, before: str = "", after: str = "") -> str | None:
    """Return the source of the template that a request gets, with Jinja before and behind it.

    None where there is no such template.
    """
    try:
        source = template.choose(request.tools).text
    except RenderError:
        return None
    # Jinja leaves out one line feed at the end of a source, and would keep it before something else.
    return before + source.removesuffix("\n") + after
