"""Policies without a server of their own, on requests of other dialects."""

import copy
from typing import Any

import pytest
from chat_messages import A, S, T, U, part
from tplaudit.probes.conversation import TOP_LEVEL, Message, Request
from tplaudit.probes.policies.api.plain_chat import plain_chat
from tplaudit.probes.policies.registry import parse_policy

HEADER = "x-anthropic-billing-header: v"
CALL = {"type": "tool_use", "id": "c1", "name": "run", "input": {"all": True}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "u"}}
NOTE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "log"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}}


def anthropic(*messages: tuple[str, Any], system: Any = None) -> Request:
    data = ({"role": role, "content": content} for role, content in messages)
    return Request(
        tuple(Message(each, index) for index, each in enumerate(data)),
        dialect="anthropic-messages",
        system=system,
    )


SESSION = anthropic(
    ("user", "Go."),
    ("system", "Plan mode is on."),
    ("assistant", [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, part("Let me see."), CALL]),
    ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": [part("two"), part("three")]}, NOTE]),
    system=[part(HEADER), part("Be brief.")],
)


def seen(request: Request) -> list[tuple[int, dict[str, Any]]]:
    return [(message.index, dict(message.data)) for message in request.messages]


def test_nothing_is_left_out_and_system_turns_stay() -> None:
    before = copy.deepcopy(SESSION)
    prepared = parse_policy("as-is").prepare(SESSION, None)  # type: ignore[arg-type]
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": {"all": True}}}
    assert seen(prepared.request) == [
        (TOP_LEVEL, S(f"{HEADER}\nBe brief.")),
        (0, U("Go.")),
        (1, S("Plan mode is on.")),
        (2, A("Let me see.", reasoning_content="Hm.", tool_calls=[call])),
        (3, T("two\nthree")),
        (3, U("log")),
    ]
    assert (prepared.request.dialect, prepared.request.system) == ("openai-chat", None)
    assert before == SESSION
    assert [action.messages for action in prepared.actions if action.kind == "kept"] == [(TOP_LEVEL,), (1,)]


def test_what_chat_messages_have_no_place_for_is_said() -> None:
    request = anthropic(("user", [part("a"), IMAGE, PDF, {"type": "search_result"}]))
    prepared = plain_chat(request)
    image = {"type": "image_url", "image_url": {"url": "u"}}
    assert prepared.request.messages[0].content == [image, part("a")]
    (dropped,) = [action for action in prepared.actions if action.kind == "dropped"]
    assert (dropped.messages, "document, search_result" in dropped.why) == ((0,), True)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("hoist", f"{HEADER}\nBe brief.\n\nPlan mode is on."),
        ("hoist+merge", f"{HEADER}\nBe brief.\n\nPlan mode is on."),
        ("note", f"{HEADER}\nBe brief."),
        ("note+merge", f"{HEADER}\nBe brief."),
    ],
)
def test_hoist_and_note_see_the_top_level_text(name: str, first: str) -> None:
    messages = parse_policy(name).prepare(SESSION, None).request.messages  # type: ignore[arg-type]
    assert messages[0].content == first
    assert all(message.role != "system" for message in messages[1:])
    assert messages[0].origin(0) == TOP_LEVEL


@pytest.mark.parametrize("name", ["as-is", "hoist", "note"])
def test_responses_items(name: str) -> None:
    items: list[dict[str, Any]] = [
        U([{"type": "input_text", "text": "Go."}]),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "two"},
    ]
    request = Request(
        tuple(Message(item, index) for index, item in enumerate(items)),
        dialect="openai-responses",
        system="Be brief.",
    )
    after = parse_policy(name).prepare(request, None).request  # type: ignore[arg-type]
    assert [(message.index, message.role) for message in after.messages] == [
        (TOP_LEVEL, "system"),
        (0, "user"),
        (2, "assistant"),
        (3, "tool"),
    ]
    assert after.messages[2].data["reasoning_content"] == "Hm."


def test_a_chat_request_stays_the_same_object() -> None:
    request = Request((Message(U("Go."), 0),))
    assert plain_chat(request).request is request
