"""The values that rendering takes and gives. What renders them is confined to worker/.

What a template gets besides its messages is what `apply_chat_template` of transformers 5.24 gives it; see
docs/rendering.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # the process that renders does without
    from ..conversation import Request

Profile = Literal["transformers", "raw", "llama.cpp"]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one render.

    Attributes:
        seconds: CPU time of the process that renders, so that a busy machine changes no verdict.
        characters: length of the output.
        bytes: memory of the process that renders.
    """

    seconds: float = 10.0
    characters: int = 32_000_000
    bytes: int = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """One conversation to render: what `apply_chat_template` takes.

    Attributes:
        messages: OpenAI chat messages.
        tools: the tool list or None.
        variables: special tokens and, over them, the request's chat-template kwargs.
        add_generation_prompt: whether the prompt ends with the opening of an assistant turn.
        continue_final_message: whether the prompt is cut where the last message's content ends, or the field
            of this name.
        now: the clock that `strftime_now` shows; None for the local time.
        profile: `transformers`, or `raw` for the environment alone with the messages as given; `llama.cpp` is
            that with manners of its own engine.
        lasting: whether no message or tool object is ever changed, so that one is looked at only once.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool | str = False
    now: datetime | None = None
    profile: Profile = "transformers"
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class RenderTask:
    """One of several renders that travel together (`ChatTemplate.render_many`).

    Attributes:
        request: what the template sees.
        add_generation_prompt: whether the prompt ends with the opening of an assistant turn.
        profile: replaces the template's own profile.
        text: what to look for: where it stands comes with the prompt.
    """

    request: Request
    add_generation_prompt: bool = True
    profile: Profile | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenAt:
    """The first chunk of a prompt that holds a text which was looked for.

    Attributes:
        start: offset of its first character in the prompt.
        end: offset after its last character.
        line: line of the template source, counted from 1, or None.
    """

    start: int
    end: int
    line: int | None

    def covers(self, offset: int) -> bool:
        """Tell whether a character of the prompt is in it."""
        return self.start <= offset < self.end


@dataclass(frozen=True, slots=True)
class PromptText:
    """What a template made of a conversation.

    Attributes:
        text: the prompt.
        body: its length without the generation prompt, where that is known from the same render.
        place: where the text stands that was looked for; None where no single chunk holds it.
    """

    text: str
    body: int | None = None
    place: WrittenAt | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of output that the template wrote in one piece.

    Attributes:
        start: offset of its first character in the prompt.
        end: offset after its last character.
        messages: indices of the messages that the template's local variables held, innermost scope last.
        tools: whether a local variable held a tool of the tool list.
        line: line of the template source, counted from 1, or None.
        literal: whether it stands in the template's source as it is, so that no message's text is in it.
    """

    start: int
    end: int
    messages: tuple[int, ...]
    tools: bool
    line: int | None
    literal: bool = False
