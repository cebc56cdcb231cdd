"""The conversations of the capability probe: where a system turn may stand, and the messages around it.

A conversation is a tuple of names out of `MESSAGES`, so that the prompts which several placements share are
rendered once. Every text is one made-up word, which a template cannot wrap or trim and will not write
itself; call ids are nine letters and digits, as strict templates demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

Preceding = Literal["user", "tool", "assistant"]
Follows = Literal["tail", "between", "before-user", "before-tool"]
Shape = Literal["plain", "two-in-a-row", "two-runs", "between-results", "parallel-calls", "two-leading"]
SystemRole = Literal["system", "developer"]
#: Where a moved run is written: before the first user turn, elsewhere before the message that it followed,
#: or behind the message that followed it.
MovedTo = Literal["front", "earlier", "later"]

#: Names of messages, in order.
Conversation = tuple[str, ...]

TOOL_NAME = "get_weather"
TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "description": "Tell the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Name of the city."}},
                "required": ["city"],
            },
        },
    },
)

#: The texts of the messages; those that call tools have none. `NAME/parts` has it as a content list.
TEXTS: dict[str, str] = {
    "leading": "zqlimazq",
    "leading-developer": "zqmikezq",
    "user": "zqalphazq",
    "user-2": "zqbravozq",
    "user-next": "zqcharliezq",
    "assistant": "zqdeltazq",
    "assistant-next": "zqechozq",
    "result-1": "zqfoxtrotzq",
    "result-2": "zqgolfzq",
    "system": "zqkilozq",
    "developer": "zqkilozq",
    "system-2": "zqoscarzq",
    "system-earlier": "zqpapazq",
}
_ROLES = {"leading": "system", "leading-developer": "developer", "developer": "developer", "result": "tool"}


def _call(number: int, arguments: Any) -> dict[str, Any]:
    function = {"name": TOOL_NAME, "arguments": arguments}
    return {"id": f"auditcal{number}", "type": "function", "function": function}


def _message(name: str) -> dict[str, Any]:
    kind = name.split("-")[0]
    message: dict[str, Any] = {"role": _ROLES.get(name) or _ROLES.get(kind, kind), "content": TEXTS[name]}
    if kind == "result":
        message |= {"tool_call_id": f"auditcal{name[-1]}", "name": TOOL_NAME}
    return message


def _calls(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def _in_parts(name: str) -> dict[str, Any]:
    return _message(name) | {"content": [{"type": "text", "text": TEXTS[name]}]}


MESSAGES: dict[str, Mapping[str, Any]] = {
    **{name: _message(name) for name in TEXTS},
    **{f"{name}/parts": _in_parts(name) for name in ("leading", "user", "assistant", "result-1")},
    "call": _calls(_call(1, {"city": "Oslo"})),
    "call/text": _calls(_call(1, '{"city": "Oslo"}')),
    "calls": _calls(_call(1, {"city": "Oslo"}), _call(2, {"city": "Lima"})),
}

_SUCCESSORS = {
    "tail": None,
    "between": "assistant-next",
    "before-user": "user-next",
    "before-tool": "result-2",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One place for a run of system turns in a conversation.

    Attributes:
        preceding: role of the message before the run.
        placement: what follows: nothing (`tail`), an assistant turn (`between`), a user turn, a tool result.
        leading: whether the conversation begins with a system message.
        role: role of the run's messages.
        tools: whether the request has tools; after a tool result it always has.
        shape: `plain`, or what else is special about the conversation.
    """

    preceding: Preceding
    placement: Follows
    leading: bool
    role: SystemRole
    tools: bool
    shape: Shape = "plain"

    @property
    def history(self) -> Conversation:
        """The messages before the run."""
        opening: Conversation = ("leading",) if self.leading else ()
        turn: Conversation = ("user",)
        match self.shape:
            case "two-leading":
                opening = ("leading", "leading-developer")
            case "two-runs":
                opening += ("user", "system-earlier", "assistant")
                turn = ("user-2",)
        match self.preceding:
            case "assistant":
                turn += ("assistant",)
            case "tool":
                turn += {
                    "between-results": ("calls", "result-1"),
                    "parallel-calls": ("calls", "result-1", "result-2"),
                }.get(self.shape, ("call", "result-1"))
        return opening + turn

    @property
    def run(self) -> Conversation:
        """The system messages themselves."""
        return ("system", "system-2") if self.shape == "two-in-a-row" else (self.role,)

    @property
    def predecessor(self) -> str:
        """The message before the run."""
        return self.history[-1]

    @property
    def successor(self) -> str | None:
        """The message after the run, if any."""
        return _SUCCESSORS[self.placement]

    @property
    def conversation(self) -> Conversation:
        """The whole conversation, with the run."""
        return self.history + self.run + self._end

    @property
    def without_run(self) -> Conversation:
        """The whole conversation, without the run."""
        return self.history + self._end

    @property
    def prompted(self) -> bool:
        """Whether a server would ask for a generation prompt."""
        return self.placement == "tail"

    @property
    def pair(self) -> str:
        """Role before and what follows, such as `tool/tail`."""
        return f"{self.preceding}/{self.placement}"

    @property
    def _end(self) -> Conversation:
        return () if self.successor is None else (self.successor,)


def _plain() -> Iterator[Case]:
    preceding: tuple[Preceding, ...] = ("user", "tool", "assistant")
    follows: tuple[Follows, ...] = ("tail", "between", "before-user")
    roles: tuple[SystemRole, ...] = ("system", "developer")
    for before, placement, leading, role in product(preceding, follows, (False, True), roles):
        for tools in (True,) if before == "tool" else (False, True):
            yield Case(before, placement, leading, role, tools)


def _further() -> Iterator[Case]:
    yield Case("user", "tail", True, "system", False, "two-in-a-row")
    yield Case("user", "between", True, "system", False, "two-in-a-row")
    yield Case("tool", "tail", True, "system", True, "two-in-a-row")
    yield Case("user", "tail", True, "system", False, "two-runs")
    yield Case("tool", "tail", True, "system", True, "two-runs")
    yield Case("user", "tail", True, "system", False, "two-leading")
    yield Case("tool", "tail", True, "system", True, "parallel-calls")
    yield Case("tool", "before-tool", True, "system", True, "between-results")


#: Every combination of what stands before and after, with and without leading block and tools, in both roles.
PLAIN: tuple[Case, ...] = tuple(_plain())
#: What else agents send, with a leading block and role system.
FURTHER: tuple[Case, ...] = tuple(_further())
#: The placement whose prompt shows whether a chat-template kwarg matters.
REPRESENTATIVE = Case("tool", "tail", True, "system", True)


#: What may stand before and behind a run of system turns, in words.
AFTER = {"user": "after a user turn", "tool": "after a tool result", "assistant": "after an assistant turn"}
FOLLOWS = {
    "tail": "at the end",
    "between": "before an assistant turn",
    "before-user": "before a user turn",
    "before-tool": "before another tool result",
}
#: What may follow in the plain matrix.
EVERY_END = ("tail", "between", "before-user")


def in_words(places: Iterable[tuple[str, str]], every_end: Iterable[str] = EVERY_END) -> str:
    """Say where some placements are, such as `after a user turn and after a tool result (at the end)`.

    Args:
        places: role before and what follows, of each.
        every_end: what may follow; where all of it does, nothing is said of it.
    """
    ends: dict[str, dict[str, None]] = {}
    for preceding, placement in places:
        ends.setdefault(preceding, {})[placement] = None
    if ends.keys() == AFTER.keys() and all(set(each) >= set(every_end) for each in ends.values()):
        return "everywhere"
    groups: dict[str, list[str]] = {}
    for preceding, placements in ends.items():
        every = set(placements) >= set(every_end)
        qualifier = (
            "" if every else f" ({' or '.join(text for name, text in FOLLOWS.items() if name in placements)})"
        )
        groups.setdefault(qualifier, []).append(AFTER[preceding])
    return listed([f"{listed(afters)}{qualifier}" for qualifier, afters in groups.items()])


_DESTINATIONS: dict[MovedTo, str] = {
    "front": "in the first system block at the front",
    "earlier": "further up",
    "later": "further down",
}


def destination(found: Iterable[MovedTo | None]) -> str:
    """Say where moved runs are written, such as `further up`."""
    places = {place for place in found if place is not None}
    return " or ".join(text for place, text in _DESTINATIONS.items() if place in places) or "at another place"


def listed(items: Sequence[str]) -> str:
    """Write items as one would say them: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
