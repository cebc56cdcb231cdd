"""mlx-lm's server: the form of messages, and what it refuses; the installed release is the reference."""

import copy
from typing import Any

import pytest
from chat_messages import A, S, U, data, part, prepared
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import render_prepared


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_messages_keep_their_places_and_roles() -> None:
    messages = [
        S([part("a"), part("b")]),
        {"role": "developer", "content": "d"},
        U("u"),
        U("v"),
        {"role": "assistant", "tool_calls": [call('{"x": [1]}'), call(""), call("7")]},
        S("n"),
    ]
    after = prepared("mlx-lm", messages)
    assert data(after) == [
        S("ab"),
        *messages[1:4],
        {"role": "assistant", "tool_calls": [call({"x": [1]}), call(""), call(7)], "content": ""},
        messages[5],
    ]
    assert after.error is None
    assert [(action.kind, action.messages) for action in after.actions] == [
        ("kept", (0, 1)),
        ("kept", (5,)),
        ("converted", (0, 4)),
        ("converted", (4,)),
    ]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (U([part("a"), {"type": "image_url"}]), "message 0 has a content part"),
        (A("", tool_calls=[call("oops")]), "Expecting value"),
        (A("", tool_calls=[call("[" * 100_000)]), "nested too deeply"),
    ],
)
def test_what_it_refuses_is_an_error_instead_of_a_render(message: dict[str, Any], why: str) -> None:
    after = prepared("mlx-lm", [message])
    with pytest.raises(RenderError, match=f"HTTP 404: .*{why}"):
        render_prepared(after, None)  # type: ignore[arg-type]


def test_other_dialects_and_continued_messages_are_not_its_own() -> None:
    messages = [U([part("u"), part("v")])]
    after = prepared("mlx-lm", messages, dialect="anthropic-messages", system="S")
    assert data(after) == [S("S"), U("u\nv")]
    assert after.actions[0].kind == "unsupported"
    begun = [A("a")]
    assert not prepared("mlx-lm", begun, partial=True).request.partial
    assert prepared("mlx-lm:route=none", begun, partial=True).request.partial


contents = st.one_of(
    st.text(max_size=3),
    st.none(),
    st.lists(st.builds(part, st.text(max_size=3), st.sampled_from(["text", "text", "image"])), max_size=3),
)
arguments = st.sampled_from(['{"a": 1}', "[1]", "7", "", "oops", {"a": 1}, None])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), contents, arguments), max_size=5))
def test_against_the_installed_server(turns: list[tuple[str, Any, Any]]) -> None:
    from mlx_lm.server import process_message_content

    messages: list[dict[str, Any]] = [{"role": role, "content": content} for role, content, _ in turns]
    for message, (role, _, argument) in zip(messages, turns, strict=True):
        if role == "assistant":
            message["tool_calls"] = [call(argument)]
    theirs = copy.deepcopy(messages)
    after = prepared("mlx-lm", messages)
    try:
        process_message_content(theirs)
    except ValueError:
        assert after.error is not None
    else:
        assert after.error is None
        assert data(after) == theirs
