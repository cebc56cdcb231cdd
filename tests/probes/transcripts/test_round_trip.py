"""A random conversation, written in every shape that is read, gives the same requests."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import Request
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.reader import open_transcript

_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_parts = st.fixed_dictionaries({"type": st.just("text"), "text": _texts})
_content = st.none() | _texts | st.lists(_parts | _texts, max_size=3)
_call = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {"name": _texts, "arguments": st.dictionaries(_texts, _values, max_size=3)}
        )
    }
)
_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"]), "content": _content},
    optional={"tool_calls": st.lists(_call, max_size=2), "name": _texts, "extra": _values},
)
_headers = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.none() | st.lists(st.dictionaries(_texts, _values, max_size=2), max_size=2),
        "chat_template_kwargs": st.none() | st.dictionaries(_texts, _values, max_size=2),
        "now": st.datetimes().map(lambda moment: moment.isoformat()),
    },
).filter(lambda header: not any("input_schema" in tool for tool in header.get("tools") or []))


def _bodies(header: dict[str, Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests of the conversation, made without the reader."""
    ends = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index]
    bodies = [{**header, "messages": messages[:end], "response": messages[end]} for end in ends]
    if messages[-1]["role"] != "assistant":
        bodies.append({**header, "messages": messages})
    return bodies


def _seen(request: Request) -> str:
    return json.dumps(
        [
            [[message.index, message.data, message.pieces] for message in request.messages],
            request.tools,
            request.kwargs,
            str(request.now),
            request.partial,
            request.reply,
        ]
    )


def _shapes(bodies: list[dict[str, Any]]) -> dict[str, str]:
    bare = [{key: value for key, value in body.items() if key != "response"} for body in bodies]
    replies = [body.get("response") for body in bodies]
    completions = [{"choices": [{"message": reply}]} if reply else None for reply in replies]
    batch = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": body,
            "response": reply,
        }
        for number, (body, reply) in enumerate(zip(bare, completions, strict=True))
    ]
    pairs = [{"request": b, "response": r} for b, r in zip(bare, completions, strict=True)]
    return {
        "bodies": "".join(json.dumps(body) + "\n" for body in bodies),
        "unicode": "".join(json.dumps(body, ensure_ascii=False) + "\r\n" for body in bodies),
        "batch": "\n".join(map(json.dumps, batch)),
        "pairs": "\n\n".join(map(json.dumps, pairs)),
        "document": json.dumps({"requests": bodies}),
        "indented": json.dumps({"requests": pairs}, indent=1),
    }


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=_headers, messages=st.lists(_messages, min_size=1, max_size=8))
def test_the_same_requests_in_every_shape(
    tmp_path: Path, header: dict[str, Any], messages: list[dict[str, Any]]
) -> None:
    path = tmp_path / "transcript"
    lines = [header, *messages] if header else messages
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    bodies = _bodies(header, messages)
    if not bodies:
        with pytest.raises(InputError, match="no request"):
            list(open_transcript(path))
        return
    wanted = [_seen(request) for request in open_transcript(path)]
    assert [json.loads(seen)[0] for seen in wanted] == [
        [[index, message, []] for index, message in enumerate(body["messages"])] for body in bodies
    ]
    for shape, text in _shapes(bodies).items():
        path.write_bytes(text.encode("utf-8"))
        requests = list(open_transcript(path))
        assert [_seen(request) for request in requests] == wanted, shape
        for earlier, later in pairwise(requests):
            assert all(a is b for a, b in zip(earlier.messages, later.messages, strict=False)), shape


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=60) | _values.map(lambda value: json.dumps(value).encode()),
    lines=st.integers(0, 2),
)
def test_whatever_the_bytes_the_only_error_is_ours(tmp_path: Path, data: bytes, lines: int) -> None:
    path = tmp_path / "transcript"
    path.write_bytes(b'{"messages": [{"role": "user", "content": "a"}]}\n' * lines + data)
    read = 0
    try:
        for _ in open_transcript(path):
            read += 1
    except InputError as error:
        assert str(error).startswith(str(path))
        assert b"\0" in data or read == lines
    else:
        assert read >= lines
