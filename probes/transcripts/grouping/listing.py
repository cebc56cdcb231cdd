"""The conversations of a recording, without a model; the JSON form is `tplaudit.transcripts/1`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .... import __version__
from ...conversation import Dialect, Request, Transcript
from ...errors import InputError
from .agents import Agent, agent_of, tool_name
from .arrival import in_order_of_arrival
from .conversation_names import ConversationName
from .conversations import Continuation, Conversations, Relation, relation_counts

SCHEMA = "tplaudit.transcripts/1"


@dataclass(frozen=True, slots=True)
class ListedTurn:
    """One request.

    Attributes:
        turn: its number, counted from 1.
        conversation: number of its conversation.
        predecessor: the turn that it continues; None where it begins a conversation.
        relation: how it does.
        changed: what else differs from the predecessor: `tools`, `system`.
        messages: how many it has.
        sent: when it arrived, ISO 8601; None where the recording does not say.
    """

    turn: int
    conversation: int
    predecessor: int | None
    relation: Relation
    changed: tuple[str, ...]
    messages: int
    sent: str | None


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """One conversation.

    Attributes:
        conversation: its number, counted from 1 by first requests.
        name: what people know it by; None where nothing tells.
        guessed: whether the name is only likely.
        requests: how many it has.
        first_turn: its first request.
        last_turn: its last one.
        messages: how many messages the longest of them has.
        tools: names of the tools of its last request.
        models: the models that were asked for.
        first_sent: when its first request arrived, where that is known.
        last_sent: when its last one did.
        relations: how many of its requests begin it, append, edit, or branch off.
        changed: how many changed the tools or the system text.
    """

    conversation: int
    name: str | None
    guessed: bool
    requests: int
    first_turn: int
    last_turn: int
    messages: int
    tools: tuple[str, ...]
    models: tuple[str, ...]
    first_sent: str | None
    last_sent: str | None
    relations: Mapping[Relation, int]
    changed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TranscriptListing:
    """A recording.

    Attributes:
        transcript: what the person named.
        format: how it is stored.
        dialect: the API that its requests were sent to.
        agent: the agent that sent them; None where nothing tells.
        complete: whether it was read to its end.
        error: why not.
    """

    schema: str
    tplaudit: str
    transcript: str
    format: str
    dialect: Dialect
    agent: Agent | None
    requests: int
    conversations: tuple[ListedConversation, ...]
    turns: tuple[ListedTurn, ...]
    complete: bool = True
    error: str | None = None


@dataclass(slots=True)
class _Gathered:
    """What is known of a conversation so far."""

    found: list[Continuation] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    messages: int = 0

    def add(self, continuation: Continuation, request: Request) -> None:
        self.found.append(continuation)
        self.tools = tuple(map(tool_name, request.tools or ()))
        self.messages = max(self.messages, len(request.messages))
        if request.sent is not None:
            self.sent.append(request.sent.isoformat())
        model = request.fields.get("model")
        if isinstance(model, str):
            self.models[model] = None

    def listed(self, name: ConversationName) -> ListedConversation:
        turns = [each.turn for each in self.found]
        changed = [what for each in self.found for what in each.changed]
        return ListedConversation(
            conversation=name.conversation,
            name=name.name,
            guessed=name.guessed,
            requests=len(turns),
            first_turn=min(turns),
            last_turn=max(turns),
            messages=self.messages,
            tools=self.tools,
            models=tuple(self.models),
            first_sent=self.sent[0] if self.sent else None,
            last_sent=self.sent[-1] if self.sent else None,
            relations=relation_counts(self.found),
            changed={what: changed.count(what) for what in ("tools", "system")},
        )


def list_conversations(transcript: Transcript) -> TranscriptListing:
    """Read a recording and tell its conversations, up to its end or its first fault."""
    conversations = Conversations()
    gathered: dict[int, _Gathered] = {}
    turns: list[ListedTurn] = []
    agent: Agent | None = None
    error: str | None = None
    try:
        for continuation, request in in_order_of_arrival(transcript, conversations):
            gathered.setdefault(continuation.conversation, _Gathered()).add(continuation, request)
            if agent is None or agent.guessed:
                agent = agent_of(request) or agent
            turns.append(
                ListedTurn(
                    continuation.turn,
                    continuation.conversation,
                    continuation.predecessor,
                    continuation.relation,
                    continuation.changed,
                    len(request.messages),
                    request.sent.isoformat() if request.sent else None,
                )
            )
    except InputError as failure:
        error = str(failure)
    return TranscriptListing(
        schema=SCHEMA,
        tplaudit=__version__,
        transcript=transcript.source,
        format=transcript.format,
        dialect=transcript.dialect,
        agent=agent,
        requests=len(turns),
        conversations=tuple(
            gathered[name.conversation].listed(name)
            for name in conversations.names()
            if name.conversation in gathered
        ),
        turns=tuple(sorted(turns, key=lambda turn: turn.turn)),
        complete=error is None,
        error=error,
    )
