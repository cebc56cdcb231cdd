"""mlx-lm's server: messages reach the template as they are, but for their form.

System turns are neither moved nor joined. A content list must be of text parts, which are joined by nothing;
a missing content is an empty text; tool-call arguments that are text are parsed. What does not fit, and
whatever the template raises, becomes HTTP 404. There is only chat completions: a request of another dialect
is rendered as a proxy before the server would translate it (docs/servers.md, section 8; ml-explore/mlx-lm,
mlx_lm/server.py, releases of August 2026 to 0.32.2). `route=none` is the message function alone.

A text model is what is followed: with a vision model the server keeps lists that hold images.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ...conversation import Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import PassesOn, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import as_one_text, is_text_part
from ..rewrite.preparation import never_continued
from ..rewrite.system_turns import each_changed, keep
from ..rewrite.tool_arguments import parse_arguments

ANTHROPIC = AnthropicRules(reasoning="field", dropped_system=())
RESPONSES = ResponsesRules()
JOINS = BlockJoins("\n")


@dataclass(frozen=True, slots=True)
class MlxLm:
    """The preparation of messages by mlx-lm's server.

    Attributes:
        name: the policy as the person named it.
        bare: the message function alone.
    """

    name: str
    bare: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it, or with the error that it answers."""
        start = as_chat(request, ANTHROPIC, RESPONSES, JOINS)
        if request.dialect != "openai-chat":
            why = "the server has only chat completions; a proxy's translation is assumed"
            start = Prepared(start.request, (Action("unsupported", (), why), *start.actions))
        done = start.then(lambda messages: keep(messages, "passed on where it stands"))
        try:
            done = done.then(flatten).then(_parse)
        except ValueError as refused:
            done = done.refused(404, str(refused))
        return done if self.bare else never_continued(done)


def flatten(messages: Messages) -> Rewrite:
    """Make one text of each content list, parts joined by nothing, and an empty one of a missing content.

    Raises:
        ValueError: a list holds something else than text parts, which the server refuses.
    """
    return each_changed(messages, _flat, "converted", "its content becomes one text")


def _flat(message: Message) -> Message:
    content = message.content
    if content is None:
        return message.replace(content="")
    if not isinstance(content, list):
        return message
    if not all(map(is_text_part, content)):
        raise ValueError(f"message {message.index} has a content part that is not text")
    return as_one_text(message, "")


def _parse(messages: Messages) -> Rewrite:
    return parse_arguments(messages, _loaded)


def _loaded(text: str) -> Any:
    """Return what JSON the arguments are, an empty text as it is; raises ValueError where they are none."""
    try:
        return json.loads(text) if text else text
    except RecursionError as error:
        raise ValueError("the arguments of a tool call are nested too deeply") from error


KINDS = (
    PolicyKind(
        "mlx-lm",
        "mlx-lm's server: passes messages on; lists become text, errors become HTTP 404",
        lambda name, options: MlxLm(name, bare=options["route"] == "none"),
        source="ml-explore/mlx-lm 0.32.2",
        date="2026-08-22",
        evidence={"messages": "run"},
        cache="mlx-lm",
        drift="none of its own: what a message becomes depends on that message alone",
        options={"route": PolicyOption(("none", "chat"), "chat")},
        aliases=("mlx_lm.server",),
        # The flag: Blaizzy/mlx-vlm#1128.
        kwargs_setting="mlx_lm.server … --chat-template-args '{}'",
        checks=(PassesOn("mlx-lm", 6, "HTTP 404"),),
        reuse_reports=ReuseReports(log=True),
        suite="local",
    ),
)
