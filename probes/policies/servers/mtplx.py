"""MTPLX: the strict hoist until issue 477, later system turns as user turns since.

The server takes over oMLX's message handling, without its probe: every route goes through the same function,
which joins all system texts in front and then neighbouring turns of one role. `version=2.12` is release
2.12.2, where only the leading run is joined and a later system turn becomes a user turn where it stands,
which the user turn beside it then absorbs. `route=none` is that function's system rule alone
(docs/servers.md, section 7; youssofal/MTPLX#477, mtplx/server/omlx_bridge/adapter.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import BILLING_HEADER, AnthropicRules
from ..api.chat_route import is_void
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, route_of
from ..base import Messages, Prepared, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption
from ..rewrite.part_texts import as_one_text, as_system, merge_into_first, part_texts
from ..rewrite.preparation import never_continued
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import done, each_changed, has_role, is_system, strict_hoist, system_runs
from ..rewrite.texts import Text, join, rebuilt
from ..rewrite.tool_arguments import parse_arguments
from ..rewrite.user_notes import BOUNDARY_KEY

RELEASE = "2.12"
BETWEEN_TEXTS = "\n\n"
ANTHROPIC = AnthropicRules(reasoning="field", images=True, between_blocks="", dropped_system=())
RESPONSES = ResponsesRules()
JOINS = BlockJoins(between_system="", between_results="")


@dataclass(frozen=True, slots=True)
class Mtplx:
    """MTPLX's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        version: `2.12`, or None for the time before issue 477 was closed.
    """

    name: str
    route: str | None = None
    version: str | None = None

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        if route_of(self.route, request) == "none":
            return Prepared(request).then(self._consolidate)
        start = as_chat(request.replace(system=_system_text(request)), ANTHROPIC, RESPONSES, JOINS)
        chat = start.then(as_system).then(lambda given: parse_arguments(given, lambda text: {}))
        if self.version == RELEASE:
            chat = chat.then(_flatten).then(self._consolidate).then(_drop_void).then(_bound)
        else:
            chat = chat.then(self._consolidate)
        return never_continued(chat.then(merge_roles))

    def _consolidate(self, messages: Messages) -> Rewrite:
        if self.version != RELEASE:
            return strict_hoist(messages, "moved into the first system message")
        first = next((run.stop for run in system_runs(messages) if run.leads), 0)
        lead = merge_into_first(messages[:first], _texts, BETWEEN_TEXTS, "")
        return lead.then(lambda given: _later(given, messages[first:]))


def _later(lead: Messages, rest: Messages) -> Rewrite:
    """Return later system turns as user turns where they stand, without those that have no text."""
    output = list(lead)
    empty: list[Message] = []
    moved: list[Message] = []
    for message in rest:
        if not is_system(message):
            output.append(message)
        elif texts := _texts(message, False):
            moved.append(message)
            user = message.replace(role="user")
            output.append(rebuilt(user, texts[0].text, texts[0].pieces()))
        else:
            empty.append(message)
    noted = done("noted", moved, "becomes a user turn where it stands")
    return Rewrite(tuple(output), done("dropped", empty, "no text") + noted)


def _flatten(messages: Messages) -> Rewrite:
    """Make one text of each content, a list's joined by nothing; whatever else it holds is lost."""
    return each_changed(messages, _flat, "converted", "its content becomes one text")


def _flat(message: Message) -> Message:
    return message if isinstance(message.content, str) else as_one_text(message, "")


def _texts(message: Message, leads: bool) -> list[Text]:
    text = join(part_texts(message), "")
    return [text] if text else []


def _drop_void(messages: Messages) -> Rewrite:
    void = [message for message in messages if is_void(message)]
    kept = tuple(message for message in messages if not is_void(message))
    return Rewrite(kept, done("dropped", void, "an assistant turn without anything in it"))


def _bound(messages: Messages) -> Rewrite:
    """Mark assistant turns that call tools, so that their neighbours are not joined to them."""
    return Rewrite(
        tuple(
            Message({**message.data, BOUNDARY_KEY: True}, message.index, message.pieces)
            if has_role(message, "assistant") and message.data.get("tool_calls")
            else message
            for message in messages
        )
    )


def _system_text(request: Request) -> Any:
    """Return an Anthropic top-level system text as one, without the lines of billing headers."""
    if request.dialect != "anthropic-messages":
        return request.system
    system = Message({"role": "system", "content": request.system}, TOP_LEVEL)
    blocks = (_without_billing(text.text) for text in part_texts(system))
    return BETWEEN_TEXTS.join(block for block in blocks if block)


def _without_billing(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.strip().lower().startswith(BILLING_HEADER))
    return "\n".join(lines).strip()


KINDS = (
    PolicyKind(
        "mtplx",
        "MTPLX: the strict hoist (before issue 477); version=2.12 makes later system turns user turns",
        lambda name, options: Mtplx(name, options.get("route"), options.get("version")),
        source="youssofal/MTPLX#477; release 2.12.2 for version=2.12",
        date="2026-09-16",
        evidence={"before issue 477": "reported", "system turns of version=2.12": "run"},
        cache="mtplx",
        drift="each later system turn lengthens the first system message; with version=2.12 a later one "
        "changes at most the end of the user turn before it",
        options={
            "route": ROUTES,
            "version": PolicyOption((RELEASE,), otherwise="the server before issue 477"),
        },
        suite="local",
    ),
)
