"""Requests of the three APIs for property tests, in which every text says whose it is."""

import re
from typing import Any

from hypothesis import strategies as st
from tplaudit.probes.conversation import TOP_LEVEL, Dialect, Message, Request

DIALECTS: tuple[Dialect, ...] = ("openai-chat", "anthropic-messages", "openai-responses")
WORD = re.compile(r"⟦(-?\d+)\.\d+⟧")
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}
FUNCTION = {"type": "function", "function": {"name": "f"}}
JUNK = [7, None, {}, {"type": "search_result"}, {"type": "text"}, {"type": "text", "text": 3}]
#: Words by these numbers are reasoning, which a join of two turns may lose, and strings among content parts.
REASONING, BARE = 9, 3


def word(n: int, number: int = 0) -> str:
    """A text that no other text contains, with the index of its message."""
    return f"⟦{n}.{number}⟧"


def part(n: int, number: int, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": word(n, number)}


def found(value: Any) -> set[str]:
    return {match.group() for match in WORD.finditer(repr(value))}


@st.composite
def chat_message(draw: st.DrawFn, n: int, odd: bool) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "developer", "user", "user", "assistant", "assistant", "tool"]))
    parts = [part(n, 1), part(n, 2), {"type": "text", "text": ""}, IMAGE]
    parts += [word(n, BARE), *JUNK] if odd else []
    lists = st.lists(st.sampled_from(parts), max_size=3)
    empty = st.sampled_from(["", None, 7] if odd else ["", None])
    message = {"role": role, "content": draw(st.one_of(st.just(word(n)), st.just(word(n)), lists, empty))}
    if role == "assistant" and draw(st.booleans()):
        arguments = draw(st.sampled_from(['{"a": 1}', {"a": 1}, "oops", "{", "[1]", None]))
        calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
        message["tool_calls"] = draw(st.sampled_from([calls, [], [None, {}] if odd else [None], 7]))
    reasoning = draw(st.sampled_from([word(n, REASONING), "", None, 7] if odd else ["why"]))
    keys = [("tool_call_id", "c1"), ("reasoning_content", reasoning), *([] if odd else [("name", "x")])]
    for key, value in keys:
        if draw(st.integers(0, 4)) == 0:
            message[key] = value
    return message


@st.composite
def anthropic_message(draw: st.DrawFn, n: int, odd: bool) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "user", "assistant", "assistant", "system"]))
    source = (
        {"type": "base64", "media_type": "image/png", "data": "AA"} if odd else {"type": "url", "url": "x"}
    )
    image = {"type": "image", "source": source}
    results = [word(n, 4), [part(n, 5), part(n, 6)], None, *([[part(n, 7), image]] if odd else [])]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": draw(st.sampled_from(results))}
    document = {"type": "document", "source": {"media_type": "application/pdf"}}
    blocks = {
        "user": [
            {**result, "is_error": draw(st.booleans())} if odd else result,
            image,
            *([document] if odd else []),
        ],
        "assistant": [
            {"type": "thinking", "thinking": word(n, REASONING) if odd else "why"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ],
        "system": [],
    }[role] + [part(n, 1), part(n, 2)]
    others = [*JUNK, {"type": "tool_result"}, "no block"] if odd else [{"type": "text", "text": ""}, 7]
    lists = st.lists(st.one_of(st.sampled_from(blocks), st.sampled_from([*blocks, *others])), max_size=4)
    empty = st.sampled_from(["", None, 7] if odd else ["", None])
    return {"role": role, "content": draw(st.one_of(st.just(word(n)), lists, empty))}


@st.composite
def responses_item(draw: st.DrawFn, n: int, odd: bool) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "assistant", "system", "developer"]))
    texts, image = (
        [part(n, 1, "input_text"), part(n, 2, "input_text")],
        {"type": "input_image", "image_url": "x"},
    )
    contents = [word(n), texts, [], None, *([[texts[0], image], [image], [7]] if odd else [])]
    content = draw(st.sampled_from(contents))
    arguments = draw(st.sampled_from(["{}", "{", "", "x"]))
    summaries = [[{"type": "summary_text", "text": "why"}], *([[], None, [7]] if odd else [])]
    items = [
        {"type": "message", "role": role, "content": content},
        {"role": role, "content": content},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c1", "output": content if odd else word(n, 3)},
        {"type": "reasoning", "summary": draw(st.sampled_from(summaries)), "content": [{"text": "so"}]},
        {"type": "web_search_call"},
    ]
    return draw(st.sampled_from([*items[:2], *items]))


_MESSAGES = dict(zip(DIALECTS, (chat_message, anthropic_message, responses_item), strict=True))


@st.composite
def requests(draw: st.DrawFn, dialects: tuple[Dialect, ...] = DIALECTS, odd: bool = False) -> Request:
    """Requests; where `odd`, with parts, blocks and values that no server knows."""
    dialect = draw(st.sampled_from(dialects))
    systems = [None, "", word(TOP_LEVEL)]
    if odd or dialect == "anthropic-messages":
        systems.append([part(TOP_LEVEL, 1), part(TOP_LEVEL, 2)])  # type: ignore[arg-type]
    thinking = {"type": "enabled", "budget_tokens": 5}
    return Request(
        tuple(Message(draw(_MESSAGES[dialect](n, odd)), n) for n in range(draw(st.integers(0, 7)))),
        tools=draw(st.sampled_from([None, (), (FUNCTION, {"name": "g"}) if odd else (FUNCTION,)])),
        kwargs=draw(st.sampled_from([{}, {"enable_thinking": False}, {"reasoning_effort": "High"}])),
        partial=draw(st.booleans()),
        dialect=dialect,
        system=None if dialect == "openai-chat" else draw(st.sampled_from(systems)),
        fields=draw(st.sampled_from([{}, {"thinking": thinking}, {"thinking": 7, "model": "x-coder"}])),
    )


def check_provenance(messages: tuple[Message, ...], known: set[int]) -> None:
    """Check that every character of a word belongs to the message that the word names."""
    for message in messages:
        assert set(message.origins) <= known
        contents = [message.content] if isinstance(message.content, str) else message.content
        for number, content in enumerate(contents if isinstance(contents, list) else []):
            part = None if isinstance(message.content, str) else number
            written = content.get("text") if isinstance(content, dict) else content
            for match in WORD.finditer(written if isinstance(written, str) else ""):
                assert {message.origin(at, part) for at in range(*match.span())} == {int(match.group(1))}
