"""What Ollama's renderers get of a conversation."""

from typing import Any

import pytest
from chat_messages import CALLS, A, S, T, U, data, part, request_of
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import Prepared, render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.ollama import renderer_of
from tplaudit.probes.templates.template import ChatTemplate


def named(source: str) -> ChatTemplate:
    text = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    return ChatTemplate({"default": text}, source=source)


def prepared(renderer: str, messages: list[dict[str, Any]], **fields: Any) -> Prepared:
    request = request_of(messages, **fields)
    return parse_policy(f"ollama:renderer={renderer}").prepare(request, named("m"))


VECTORS: dict[str, tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "OL1": ("go", [U("a"), U("b"), A("c")], [U("a\n\nb"), A("c")]),
    "OL2": ("go", [S("a"), U("u"), S("n")], [S("a"), U("u"), S("n")]),
    "OL3": ("qwen3.5", [S("a"), U("u"), S("n")], [S("a"), U("u"), S("n")]),
    "OL4": ("qwen3.8", [S(" a "), U("u"), S("n")], [S("a\n\nn"), U("u")]),
    "OL5": ("qwen3.8", [U("u"), A("", **CALLS), T("r"), S("n")], [S("n"), U("u"), A("", **CALLS), T("r")]),
    "neighbouring systems": ("go", [S("a"), S("b"), U("u")], [S("a\n\nb"), U("u")]),
    "tool results stay apart": ("go", [A("", **CALLS), T("r"), T("s")], [A("", **CALLS), T("r"), T("s")]),
    "a single leading system": ("qwen3.8", [S(" a "), U("u")], [S(" a "), U("u")]),
    "a single leading developer": (
        "qwen3.8",
        [{"role": "developer", "content": " a "}, U("u")],
        [S("a"), U("u")],
    ),
    "systems without text": ("qwen3.8", [S(" "), U("u"), S("")], [S(""), U("u")]),
    "no system": ("qwen3.8", [U("u")], [U("u")]),
    "parts, collated": ("go", [U([part("a"), part("b")])], [U("a\n\nb")]),
    "parts, apart": ("qwen3.5", [U([part("a"), part("b")])], [U("a"), U("b")]),
    "unknown parts": ("go", [U([{"type": "input_audio"}]), U("b")], [U([{"type": "input_audio"}]), U("b")]),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    renderer, before, after = VECTORS[name]
    assert data(prepared(renderer, before)) == after


def test_a_go_template_sees_all_system_texts_at_once() -> None:
    after = prepared("go", [S("a"), U("u"), S("n")])
    assert after.request.kwargs == {"System": "a\n\nn"}
    assert prepared("go", [U("u")]).request.kwargs == {}


def test_what_collating_loses_is_said() -> None:
    after = prepared("go", [A("a", reasoning_content="h"), A("b", **CALLS)])
    assert data(after) == [A("a\n\nb", reasoning_content="h")]
    assert "tool_calls of message 1 is lost" in after.actions[-1].why


def test_calls_go_with_the_last_part_and_ids_with_every_result() -> None:
    after = prepared("qwen3.5", [A([part("a"), part("b")], **CALLS), T([part("r"), part("s")])])
    assert data(after) == [A("a"), A("b", **CALLS), T("r"), T("s")]
    assert [message.index for message in after.request.messages] == [0, 0, 1, 1]


def test_an_image_is_a_turn_of_its_own() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    assert data(prepared("go", [U([part("see"), image, part("this")])])) == [U("see"), U([image]), U("this")]


def test_folding_keeps_the_owners() -> None:
    first = prepared("qwen3.8", [S(" a "), U("u"), S("  n")]).request.messages[0]
    assert [first.origin(offset) for offset in range(4)] == [0, 2, 2, 2]


def test_qwen38_keeps_reasoning_and_wants_a_user() -> None:
    after = prepared("qwen3.8", [S("a"), U("u")])
    assert after.request.kwargs == {"preserve_thinking": True}
    assert after.error is None
    with pytest.raises(RenderError, match="needs a user turn"):
        render_prepared(prepared("qwen3.8", [S("a"), A("b")]), named("m"))


@pytest.mark.parametrize(
    ("source", "renderer"),
    [
        ("Qwen/Qwen3.8-27B", "qwen3.8"),
        ("qwen3_8-flash", "qwen3.8"),
        ("mlx-community/Qwen3.6-35B-A3B-4bit", "qwen3.5"),
        ("qwen-3.5.jinja", "qwen3.5"),
        ("Qwen3-8B", "go"),
        ("Qwen3-Coder", "go"),
        ("llama", "go"),
    ],
)
def test_the_renderer_goes_by_the_name(source: str, renderer: str) -> None:
    assert renderer_of(named(source)) == renderer
    after = parse_policy("ollama").prepare(
        Request((Message(S("a"), 0), Message(U("u"), 1), Message(S("n"), 2))), named(source)
    )
    assert len(after.request.messages) == (2 if renderer == "qwen3.8" else 3)


def test_an_anthropic_request_has_its_texts_before_its_results() -> None:
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [part("r"), part("s")]},
                part("a"),
                part("b"),
            ],
        }
    ]
    after = prepared(
        "qwen3.5",
        messages,
        dialect="anthropic-messages",
        system=[part("You"), part("Be")],
        fields={"thinking": {"type": "enabled"}},
    )
    assert data(after) == [S("YouBe"), U("ab"), T("rs")]
    assert after.request.kwargs == {"enable_thinking": True}


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "high"}, {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}}, {}),
        ({}, {}),
    ],
)
def test_thinking(fields: dict[str, Any], kwargs: dict[str, Any]) -> None:
    assert prepared("qwen3.5", [U("u")], fields=fields).request.kwargs == kwargs


def test_a_modelfiles_system_text_leads_requests_that_have_none() -> None:
    policy = parse_policy("ollama:renderer=qwen3.5,system=Be kind, and brief.")
    added = policy.prepare(request_of([U("u")]), named("m"))
    assert data(added) == [S("Be kind, and brief."), U("u")]
    assert [action.kind for action in added.actions][:1] == ["inserted"]
    given = policy.prepare(request_of([S("a"), U("u")]), named("m"))
    assert data(given) == [S("a"), U("u")]
