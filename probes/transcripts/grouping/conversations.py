"""Which request of a recording continues which: predecessors and conversations (docs/conversations.md)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias

from ...conversation import Request
from ..sharing import text_digest
from .conversation_names import ConversationName, Opening, names_of
from .message_keys import MessageKey, MessageKeys, call_texts, nearly_equal, system_text, texts_of

Relation: TypeAlias = Literal["begins", "appended", "edited", "branch"]
RELATIONS: tuple[Relation, ...] = ("begins", "appended", "edited", "branch")

Ids: TypeAlias = frozenset[tuple[str, str]]

#: Fields that name a session, an agent or a thread, in small letters without `_` and `-`.
_NAMES = frozenset(
    {
        "sessionid",
        "agentid",
        "subagentid",
        "threadid",
        "conversationid",
        "xsessionid",
        "xclaudecodesessionid",
        "xclaudecodeagentid",
    }
)
#: Fields of a body that may hold such names.
_HOLDERS = ("metadata", "client_metadata", "extra_body", "user")
_SESSION = re.compile(r"_session_([0-9a-fA-F-]{8,})")


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a request continues.

    Attributes:
        turn: number of the request in the file, counted from 1.
        conversation: number of its conversation, counted from 1 by first requests.
        predecessor: the turn that it continues; None where it begins a conversation.
        relation: how it does.
        changed: what else differs from the predecessor: `tools`, `system`.
    """

    turn: int
    conversation: int
    predecessor: int | None
    relation: Relation
    changed: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class _Node:
    """A message behind those before it; requests that begin alike share the nodes of what they share."""

    key: MessageKey | None
    depth: int
    children: dict[int, _Node] = field(default_factory=dict)
    ends: list[_Known] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Known:
    """What is kept of a request.

    Attributes:
        next: the message that its recorded reply would be in history.
        continued: whether a later request continues it.
    """

    turn: int
    conversation: int
    length: int
    system: str
    tools: bytes
    user: MessageKey | None
    next: MessageKey | None
    continued: bool = False


class Conversations:
    """Finds what each request of a recording continues, one request after the other.

    What is kept grows with what the requests say that none said before, not with their lengths.
    """

    def __init__(self) -> None:
        self._keys = MessageKeys()
        self._roots: dict[Ids, _Node] = {}
        self._answered: dict[str, _Known] = {}
        self._systems: dict[str, str] = {}
        self._tools: dict[bytes, tuple[Mapping[str, Any], ...] | None] = {}
        self._openings: list[Opening] = []
        self._called: dict[str, dict[int, int]] = defaultdict(dict)
        self._read: set[tuple[int, int]] = set()
        self._nearly: dict[tuple[str, str], bool] = {}

    def add(self, turn: int, request: Request) -> tuple[Request, Continuation]:
        """Tell what a request continues.

        Args:
            turn: its number in the file.
            request: the request.

        Returns:
            The request with the objects of earlier requests wherever both are written alike, and what it
            continues.
        """
        found = [self._keys.key(message) for message in request.messages]
        keys = [key for key, _ in found]
        tools = text_digest(request.tools)
        shared = request.replace(
            messages=tuple(message for _, message in found),
            tools=self._tools.setdefault(tools, request.tools),
        )
        system = system_text(request.system)
        system = self._systems.setdefault(system, system)
        root = self._roots.setdefault(ids_of(request), _Node(None, 0))
        path = [*_walk(root, keys)]
        user = next((key for key in keys if key.role == "user"), None)
        reply = self._keys.of_value(request.reply) if request.reply else None
        new = _Known(turn, 0, len(keys), system, tools, user, reply)
        known, relation = self._predecessor(request, new, keys, root, path)
        new.conversation = known.conversation if known else len(self._openings) + 1
        if known is not None:
            known.continued = True
        else:
            self._openings.append(_opening(new, request))
        self._openings[new.conversation - 1].turns.append(turn)
        self._remember(new, request, keys, path, root)
        changed = () if known is None else _changed(known, new)
        return shared, Continuation(turn, new.conversation, known.turn if known else None, relation, changed)

    def names(self) -> tuple[ConversationName, ...]:
        """Return the names of the conversations so far, in order."""
        return names_of(self._openings, self._called)

    def new_messages(self, earlier: Request, later: Request) -> frozenset[int]:
        """Return the indices of a request's messages that an earlier one of its conversation did not have.

        One that stands in its place and is nearly equal is no new one.
        """
        old = [self._keys.key(message)[0] for message in earlier.messages]
        now = [self._keys.key(message)[0] for message in later.messages]
        same = next(
            (at for at, (one, other) in enumerate(zip(old, now, strict=False)) if one is not other),
            min(len(old), len(now)),
        )
        found = set(range(same, len(now)))
        if same < len(old):
            matcher = SequenceMatcher(None, [*map(id, old[same:])], [*map(id, now[same:])], autojunk=False)
            for block in matcher.get_matching_blocks():
                found.difference_update(range(same + block.b, same + block.b + block.size))
            found -= {at for at in found if at < len(old) and self._keys.alike(old[at], now[at])}
        return frozenset(later.messages[at].index for at in found)

    def _predecessor(
        self, request: Request, new: _Known, keys: list[MessageKey], root: _Node, path: list[_Node]
    ) -> tuple[_Known | None, Relation]:
        named = self._answered.get(request.fields.get("previous_response_id") or "")
        if named is not None:
            return named, "branch" if named.continued else "appended"
        for node in reversed(path):
            leaves = [
                known for known in node.ends if not known.continued and self._may_precede(known, new, keys)
            ]
            if leaves:
                return _best_leaf(leaves, keys), "appended"
        return self._closest(new, keys, root)

    def _may_precede(self, known: _Known, new: _Known, keys: list[MessageKey]) -> bool:
        """Tell whether a request whose messages all begin this one is one that it can continue.

        A single message can be the same by chance: a title is asked for with it too.
        """
        if known.length != 1 or (known.system == new.system and known.tools == new.tools):
            return True
        follows = len(keys) > 1 and keys[1].by_model
        return follows and self._nearly_equal(known.system, new.system)

    def _closest(self, new: _Known, keys: list[MessageKey], root: _Node) -> tuple[_Known | None, Relation]:
        """Return the request that shares most with this one, where that tells that it is continued."""
        candidates = [*_candidates(root, keys, self._keys)]
        candidates.sort(
            key=lambda each: (
                each.known.user is new.user is not None,
                each.shared,
                each.shared - each.known.length,
                each.known.turn,
            ),
            reverse=True,
        )
        for each in candidates:
            if each.prefix and self._may_precede(each.known, new, keys):
                return each.known, "branch"
            if each.stands_again or (each.in_place and self._is_in_place(each.known, new, keys)):
                return each.known, "edited"
        return None, "begins"

    def _is_in_place(self, known: _Known, new: _Known, keys: list[MessageKey]) -> bool:
        """Tell whether a model's message stands among or behind those that kept their places."""
        replied = any(key.by_model for key in keys[: known.length + 1])
        return replied and self._nearly_equal(known.system, new.system)

    def _nearly_equal(self, one: str, other: str) -> bool:
        pair = (one, other)
        if pair not in self._nearly:
            self._nearly[pair] = nearly_equal(one, other)
        return self._nearly[pair]

    def _remember(
        self, new: _Known, request: Request, keys: list[MessageKey], path: list[_Node], root: _Node
    ) -> None:
        node = path[-1] if path else root
        for key in keys[node.depth :]:
            child = _Node(key, node.depth + 1)
            node.children[id(key)] = child
            node = child
        node.ends.append(new)
        said = [(key, message.data) for key, message in zip(keys, request.messages, strict=True)]
        if new.next is not None and request.reply is not None:
            said.append((new.next, request.reply))
        for key, data in said:
            name = (id(key), new.conversation)
            if key.by_model and name not in self._read:
                self._read.add(name)
                for text in call_texts(data):
                    self._called[text.strip()].setdefault(new.conversation, new.turn)
        if request.response_id is not None:
            self._answered[request.response_id] = new


def ids_of(request: Request) -> Ids:
    """Return the ids of session, agent and thread that a request names."""
    fields = request.fields
    found = set(_named(fields))
    for holder in _HOLDERS:
        held = fields.get(holder)
        if isinstance(held, Mapping):
            found.update(_named(held))
            held = held.get("user_id")
        if isinstance(held, str):
            found.update(_in_text(held))
    return frozenset(found)


def continuations(requests: Iterable[Request]) -> tuple[Continuation, ...]:
    """Tell of each request of a recording what it continues."""
    conversations = Conversations()
    return tuple(conversations.add(turn, request)[1] for turn, request in enumerate(requests, 1))


def relation_counts(found: Iterable[Continuation]) -> Mapping[Relation, int]:
    """Count relations, each of them named."""
    counts = Counter(each.relation for each in found)
    return {relation: counts[relation] for relation in RELATIONS}


def _named(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in fields.items():
        name = key.lower().replace("_", "").replace("-", "")
        if name in _NAMES and isinstance(value, str) and value:
            yield name.removeprefix("xclaudecode").removeprefix("x"), value


def _in_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield the session that Claude Code names within a user's id, as JSON or behind a word."""
    import json

    if text.startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(value, Mapping):
            yield from _named(value)
    elif session := _SESSION.search(text):
        yield "sessionid", session[1]


def _walk(root: _Node, keys: list[MessageKey]) -> Iterator[_Node]:
    node: _Node | None = root
    for key in keys:
        assert node is not None
        node = node.children.get(id(key))
        if node is None:
            return
        yield node


def _best_leaf(leaves: list[_Known], keys: list[MessageKey]) -> _Known:
    """Return the leaf whose recorded reply comes next, else the latest."""
    length = leaves[0].length
    follows = keys[length] if length < len(keys) else None
    replied = [known for known in leaves if follows is not None and known.next is follows]
    return max(replied or leaves, key=lambda known: known.turn)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An earlier request beside this one.

    Attributes:
        known: the earlier request.
        shared: messages that stand in order in both.
        prefix: whether its messages are a full prefix.
        in_place: whether all of them stand in their places, equal or nearly.
        stands_again: whether enough stands again to tell that it is the same conversation.
    """

    known: _Known
    shared: int
    prefix: bool
    in_place: bool
    stands_again: bool


@dataclass(frozen=True, slots=True)
class _Said:
    """What stands in both of two requests, so far."""

    substantial: bool = False
    by_model: int = 0
    by_user: int = 0

    def and_(self, key: MessageKey) -> _Said:
        return _Said(
            self.substantial or key.substantial,
            self.by_model + key.by_model,
            self.by_user + (key.role == "user"),
        )

    def is_enough(self, whole: bool) -> bool:
        """Tell whether it is the same conversation: something that a model or a tool wrote at length, two
        questions with an answer, or all of a request with two questions."""
        return self.substantial or (self.by_user > 1 and (whole or self.by_model > 0))


def _candidates(root: _Node, keys: list[MessageKey], alike: MessageKeys) -> Iterator[_Candidate]:
    """Yield earlier requests with what they share with this one.

    The numbers of all requests come from one walk over what they are made of: the longest common subsequence
    is carried along as the bits of a number, one step for each message.
    """
    places: dict[int, int] = defaultdict(int)
    for at, key in enumerate(keys):
        places[id(key)] |= 1 << at
    everything = (1 << len(keys)) - 1
    todo = [(root, everything, True, True, _Said())]
    while todo:
        node, bits, prefix, in_place, said = todo.pop()
        if node.ends:
            shared = len(keys) - bits.bit_count()
            for known in node.ends:
                enough = said.is_enough(shared == known.length)
                yield _Candidate(known, shared, prefix, in_place, enough)
        for child in node.children.values():
            own, at = child.key, node.depth
            assert own is not None
            same = places.get(id(own), 0)
            both = bits & same
            todo.append(
                (
                    child,
                    ((bits + both) | (bits - both)) & everything,
                    prefix and at < len(keys) and keys[at] is own,
                    in_place and at < len(keys) and alike.alike(own, keys[at]),
                    said.and_(own) if same else said,
                )
            )


def _changed(known: _Known, new: _Known) -> tuple[str, ...]:
    what = (("tools", known.tools != new.tools), ("system", known.system != new.system))
    return tuple(name for name, differs in what if differs)


def _opening(new: _Known, request: Request) -> Opening:
    texts: list[str] = []
    for message in request.messages:
        if message.data.get("role") == "user":
            texts += [text.strip() for text in texts_of(message.data)]
    return Opening(
        number=new.conversation,
        turns=[],
        system=new.system or _leading_system(request),
        tools=new.tools if request.tools else b"",
        texts=tuple(texts),
        messages=new.length,
    )


def _leading_system(request: Request) -> str:
    first = request.messages[0].data if request.messages else {}
    return "\n".join(texts_of(first)) if first.get("role") in ("system", "developer") else ""
