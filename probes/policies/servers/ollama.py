"""Ollama: how its own renderers and Go templates get the messages, shown through the model's Jinja template.

Ollama does not render the model's Jinja template for most of its library: a model brings a Go template or
the name of a built-in renderer. So only what happens to the messages is Ollama's here. `go`: neighbouring
turns of one role are joined, and `.System` has every system text. `qwen3.5`: later system turns stay where
they are. `qwen3.8`: all system texts become one first turn, and earlier reasoning is always written. Sources:
`template/template.go`, `model/renderers/qwen35.go`, `openai/openai.go` and `anthropic/anthropic.go` of
ollama/ollama; ollama/ollama#17774, #17757, #17855, #18431. See docs/servers.md, section 12.

Without the option, the renderer goes by the name that the template was loaded under (`qwen3.8` in it, or
`qwen3.5` or `qwen3.6`), else it is `go`. Chat, messages and responses all end here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, body_effort, with_kwargs
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import PolicyKind, PolicyOption
from ..rewrite.part_texts import stripped, system_turn
from ..rewrite.system_turns import done, has_role, indices, is_system, join_neighbours, keep, system_runs
from ..rewrite.texts import content_text, flat_text, join, part_text, rebuilt
from ..rewrite.tool_arguments import parse_arguments

GO, QWEN35, QWEN38 = "go", "qwen3.5", "qwen3.8"
BETWEEN = "\n\n"
_NAMES = ((QWEN38, re.compile(r"qwen-?_?3[._]8", re.I)), (QWEN35, re.compile(r"qwen-?_?3[._][56]", re.I)))
_ANTHROPIC = AnthropicRules(
    reasoning="field", images=True, between_blocks="", results_last=True, dropped_system=()
)
_JOINS = BlockJoins(between_results="")
_RESPONSES = ResponsesRules(images=True)


def renderer_of(template: ChatTemplate) -> str:
    """Return the renderer that a model of the template's name has in Ollama's library."""
    source = str(getattr(template, "source", ""))
    return next((renderer for renderer, name in _NAMES if name.search(source)), GO)


@dataclass(frozen=True, slots=True)
class Ollama:
    """Ollama's preparation of a request.

    Attributes:
        name: the policy as the person named it.
        renderer: `go`, `qwen3.5` or `qwen3.8`; None to go by the template's name.
        system: `SYSTEM` of the Modelfile, which a request gets that does not begin with a system message; ""
            for none.
    """

    name: str
    renderer: str | None = None
    system: str = ""

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as this server's renderer gets it."""
        renderer = self.renderer or renderer_of(template)
        start = as_chat(request, _ANTHROPIC, _RESPONSES, _JOINS).then(self._with_system)
        start = start.then(_split_contents)
        defaults: dict[str, Any] = {}
        why = ""
        error = None
        if renderer == GO:
            system = BETWEEN.join(
                flat_text(each).text for each in start.request.messages if has_role(each, "system")
            )
            defaults, why = {"System": system} if system else {}, "what a Go template sees as .System"
            start = start.then(lambda messages: keep(messages, "kept in .Messages, and in .System")).then(
                _collate
            )
        elif renderer == QWEN38:
            start = start.then(_fold)
            defaults, why = {"preserve_thinking": True}, "the renderer writes the reasoning of every turn"
            if not any(has_role(message, "user") for message in start.request.messages):
                error = RenderError("RendererError", "the qwen3.8 renderer needs a user turn")
        else:
            start = start.then(lambda messages: keep(messages, "left in place by the renderer"))
        prepared = replace(start.then(parse_arguments), error=error)
        return with_kwargs(with_kwargs(prepared, _thinking(request)), defaults, why, values=renderer != GO)

    def _with_system(self, messages: Messages) -> Rewrite:
        """Put the Modelfile's system text first, unless there is one (`server/routes.go`)."""
        if not self.system or (messages and has_role(messages[0], "system")):
            return Rewrite(tuple(messages), ())
        added = Message({"role": "system", "content": self.system}, TOP_LEVEL)
        why = "the Modelfile's SYSTEM, since the request does not begin with a system message"
        return Rewrite((added, *messages), (Action("inserted", (), why),))


def _split_contents(messages: Messages) -> Rewrite:
    """Make each part of a list of texts and images a turn of its own; tool calls go with the last.

    The server answers with an error where a list holds anything else; here such a content stays as it is.
    """
    output: list[Message] = []
    split: list[Message] = []
    for message in messages:
        turns = _turns(message)
        output += turns
        split += [] if len(turns) == 1 else [message]
    why = "each part of its content becomes a turn of its own"
    return Rewrite(tuple(output), done("converted", split, why))


def _turns(message: Message) -> list[Message]:
    content = message.content
    if not isinstance(content, list) or not content or not all(_known(part) for part in content):
        return [message]
    last = len(content) - 1
    return [
        _turn(message, number, part, whole=number == last or has_role(message, "tool"))
        for number, part in enumerate(content)
    ]


def _known(part: Any) -> bool:
    return part_text(part) is not None or (isinstance(part, dict) and part.get("type") == "image_url")


def _turn(message: Message, number: int, part: Any, *, whole: bool) -> Message:
    """Return a turn of one part; `whole` where it also gets the other keys."""
    own = message if whole else Message({"role": message.data.get("role")}, message.index, message.pieces)
    text = part_text(part)
    if text is None:
        pieces = tuple(dataclasses.replace(each, part=0) for each in message.pieces if each.part == number)
        return own.replace(pieces=pieces, content=[part])
    return rebuilt(own, text, content_text(message, number, text).pieces())


def _collate(messages: Messages) -> Rewrite:
    """Join neighbouring turns of one role, except tool results; the later one's other keys are lost."""
    return join_neighbours(messages, _joined)


def _joined(before: Message, after: Message) -> Message | None:
    if before.data.get("role") != after.data.get("role") or has_role(after, "tool"):
        return None
    if not all(each.content is None or isinstance(each.content, str) for each in (before, after)):
        return None
    text = join((flat_text(before), flat_text(after)), BETWEEN)
    return rebuilt(before, text.text, text.pieces())


def _fold(messages: Messages) -> Rewrite:
    """Make all system texts, trimmed, one first turn; a single one that stands first stays as it is."""
    turns = [message for message in messages if is_system(message)]
    if not turns or (len(turns) == 1 and has_role(messages[0], "system")):
        return keep(messages, "is first in the conversation")
    texts = [(message, stripped(flat_text(message))) for message in turns]
    kept = [(message, text) for message, text in texts if text]
    empty = [message for message, text in texts if not text]
    first = system_turn(kept or texts[:1], BETWEEN)
    others = tuple(message for message in messages if not is_system(message))
    actions = [*done("dropped", empty, "no text")]
    for run in system_runs(messages):
        mine = indices([message for message in run.messages if message not in empty])
        if mine:
            why = "joined in the first turn" if run.leads else "moved into the first turn"
            actions.append(Action("merged" if run.leads else "hoisted", mine, why))
    return Rewrite((first, *others), tuple(actions))


def _thinking(request: Request) -> dict[str, Any]:
    """Return the kwarg for what the request's body says of thinking, if anything."""
    thinking = request.fields.get("thinking")
    if isinstance(thinking, Mapping):
        return {"enable_thinking": True} if thinking.get("type") == "enabled" else {}
    effort = body_effort(request)
    return {} if effort is None else {"enable_thinking": effort != "none"}


KINDS = (
    PolicyKind(
        "ollama",
        "Ollama: its messages for Go templates and for the qwen3.5 and qwen3.8 renderers",
        lambda name, options: Ollama(name, options.get("renderer"), options.get("system", "")),
        source="ollama/ollama template/template.go, model/renderers/qwen35.go; #17757, #17855, #17918",
        date="2026-08-21",
        evidence={"messages": "read"},
        cache="ollama",
        drift="With qwen3.8 and Go templates that write .System every new system turn lengthens the first "
        "block, so that all behind it is computed again; qwen3.5 leaves earlier text as it is.",
        options={
            "renderer": PolicyOption((GO, QWEN35, QWEN38), otherwise="the template's name; go for others"),
            "system": PolicyOption((), otherwise="none: SYSTEM of the Modelfile, given last"),
        },
        suite="engines",
    ),
)
