"""Random Anthropic and Responses conversations, in every shape that is read, give the same requests."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
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
_marks = st.just({"type": "ephemeral"})


def _block(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields}, optional={"cache_control": _marks})


_text_blocks = _block("text", text=_texts)
_sources = st.fixed_dictionaries({"type": st.just("text"), "data": _texts})
_blocks = st.one_of(
    _text_blocks,
    _block("thinking", thinking=_texts, signature=_texts),
    _block("redacted_thinking", data=_texts),
    _block("tool_use", id=_texts, name=_texts, input=st.dictionaries(_texts, _values, max_size=3)),
    _block(
        "tool_result",
        tool_use_id=_texts,
        content=st.none() | _texts | st.lists(_text_blocks | _block("image", source=_sources), max_size=2),
    ),
    _block("document", source=_sources),
    _block("search_result", title=_texts),
)
_messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "user", "assistant", "system"]),
        "content": _texts | st.lists(_blocks, max_size=3),
    }
)
_anthropic_fields = st.fixed_dictionaries(
    {"system": _texts | st.lists(_text_blocks, max_size=3)},
    optional={
        "tools": st.lists(st.fixed_dictionaries({"name": _texts, "input_schema": _values}), max_size=2),
        "thinking": st.fixed_dictionaries({"type": st.sampled_from(["enabled", "disabled"])}),
        "chat_template_kwargs": st.dictionaries(_texts, _values, max_size=2),
        "model": _texts,
    },
)

_parts = st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text"]), "text": _texts})
_contents = _texts | st.lists(_parts, max_size=2)
_items = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": _contents},
        optional={"type": st.just("message")},
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": _texts, "name": _texts, "arguments": _texts}
    ),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": _texts, "output": _contents}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "summary": st.lists(_parts, max_size=1)}),
    st.fixed_dictionaries({"type": st.just("compaction"), "encrypted_content": _texts}),
)
_responses_fields = st.fixed_dictionaries(
    {},
    optional={
        "instructions": _texts,
        "tools": st.lists(st.dictionaries(_texts, _values, max_size=2), max_size=2),
        "reasoning": st.dictionaries(_texts, _values, max_size=2),
    },
)


def _shapes(bodies: list[dict[str, Any]], path: str) -> dict[str, str]:
    batch = [{"custom_id": "1", "method": "POST", "url": path, "body": body} for body in bodies]
    pairs = [{"request": body, "response": None} for body in bodies]
    return {
        "bodies": "".join(json.dumps(body) + "\n" for body in bodies),
        "unicode": "".join(json.dumps(body, ensure_ascii=False) + "\r\n" for body in bodies),
        "batch": "\n".join(map(json.dumps, batch)),
        "pairs": "\n\n".join(map(json.dumps, pairs)),
        "document": json.dumps({"requests": bodies}),
        "indented": json.dumps({"requests": pairs}, indent=1),
    }


def _seen(request: Request) -> str:
    return json.dumps(
        [
            [[message.index, dict(message.data)] for message in request.messages],
            request.system,
            request.tools,
            dict(request.kwargs),
            dict(request.fields),
        ]
    )


def _unmarked(value: Any) -> Any:
    """A body without the marks for Anthropic's cache; the input of a tool is no block."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key in ("input", "source") else _unmarked(item)
            for key, item in value.items()
            if key != "cache_control"
        }
    return value


def _check_all(path: Path, shapes: dict[str, str], dialect: str, wanted: list[str]) -> None:
    for shape, text in shapes.items():
        path.write_bytes(text.encode("utf-8"))
        transcript = open_transcript(path)
        requests = list(transcript)
        assert transcript.dialect == dialect, shape
        assert {request.dialect for request in requests} == {dialect}, shape
        assert [_seen(request) for request in requests] == wanted, shape
        for earlier, later in pairwise(requests):
            assert all(a is b for a, b in zip(earlier.messages, later.messages, strict=False)), shape


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=_anthropic_fields, messages=st.lists(_messages, min_size=1, max_size=7))
def test_anthropic_messages(tmp_path: Path, fields: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    ends = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index]
    ends += [len(messages)] if messages[-1]["role"] != "assistant" else []
    bodies = [{**fields, "messages": messages[:end]} for end in ends]
    if not bodies:
        return
    settled = {"messages", "system", "tools", "chat_template_kwargs"}
    wanted = [
        json.dumps(
            [
                [[n, _unmarked(message)] for n, message in enumerate(body["messages"])],
                _unmarked(fields["system"]),
                fields.get("tools"),
                fields.get("chat_template_kwargs", {}),
                {key: value for key, value in fields.items() if key not in settled},
            ]
        )
        for body in bodies
    ]
    shapes = _shapes(bodies, "/v1/messages")
    lines = [{"dialect": "anthropic-messages", **fields}, *messages]
    shapes["messages"] = "".join(json.dumps(line) + "\n" for line in lines)
    _check_all(tmp_path / "transcript", shapes, "anthropic-messages", wanted)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=_responses_fields,
    items=st.lists(_items, min_size=1, max_size=7),
    cuts=st.sets(st.integers(1, 7), max_size=3),
)
def test_openai_responses(
    tmp_path: Path, fields: dict[str, Any], items: list[dict[str, Any]], cuts: set[int]
) -> None:
    ends = sorted({min(cut, len(items)) for cut in cuts} | {len(items)})
    bodies = [{**fields, "input": items[:end]} for end in ends]
    wanted = [
        json.dumps(
            [
                [[n, item] for n, item in enumerate(body["input"])],
                fields.get("instructions"),
                fields.get("tools"),
                {},
                {"reasoning": fields["reasoning"]} if "reasoning" in fields else {},
            ]
        )
        for body in bodies
    ]
    _check_all(tmp_path / "transcript", _shapes(bodies, "/v1/responses"), "openai-responses", wanted)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "input",
                "system",
                "instructions",
                "tools",
                "response",
                "body",
                "params",
                "url",
                "role",
                "content",
                "dialect",
                "previous_response_id",
            ]
        ),
        _values | st.lists(_messages | _items | _values, max_size=3) | st.just([{"role": "user"}]),
        min_size=1,
    ),
    before=st.sampled_from(
        [{}, {"system": "", "messages": [{"role": "user", "content": ""}]}, {"input": ""}]
    ),
)
@example(body={"input": [], "messages": []}, before={})
def test_whatever_a_body_holds_the_only_error_is_ours(
    tmp_path: Path, body: dict[str, Any], before: dict[str, Any]
) -> None:
    path = tmp_path / "transcript"
    path.write_text("".join(json.dumps(line) + "\n" for line in (before, body) if line))
    try:
        dialects = {request.dialect for request in open_transcript(path)}
    except InputError as error:
        assert str(error).startswith(str(path))
        assert error.fix
    else:
        assert len(dialects) == 1
