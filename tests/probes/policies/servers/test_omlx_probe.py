"""oMLX's probe: what it renders, how it judges, what it remembers."""

from typing import Any

import pytest
from chat_messages import A, S, U
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.rewrite.system_turns import Placement
from tplaudit.probes.policies.servers.omlx import Omlx
from tplaudit.probes.policies.servers.omlx_probe import (
    ASSISTANT_MARKER,
    CALL_ID,
    PROBE_TOOL,
    SYSTEM_MARKER,
    TOOL_MARKER,
    USER_MARKER,
    Probe,
    frozen,
)

PLACES = [Placement(role, kind) for role in ("user", "tool") for kind in ("tail", "between")]
TOOLS = ({"type": "function", "function": {"name": "f"}},)
REQUEST = Request((Message(U("u"), 0),))


def test_the_probe_conversations(fake_template: Any) -> None:
    user = U("__OMLX_MID_SYSTEM_PROBE_USER__")
    call = {"name": "omlx_probe_tool", "arguments": {}}
    calling = A("", tool_calls=[{"id": "omlx_mid_system_probe_call", "type": "function", "function": call}])
    result = {
        "role": "tool",
        "tool_call_id": "omlx_mid_system_probe_call",
        "content": "__OMLX_MID_SYSTEM_PROBE_TOOL__",
    }
    system = S("__OMLX_MID_SYSTEM_PROBE_SYSTEM__")
    assistant = A("__OMLX_MID_SYSTEM_PROBE_ASSISTANT__")
    template, probe = fake_template(), Probe()
    for place in PLACES:
        assert probe(template, place, REQUEST).in_place
    assert [call["messages"] for call in template.calls] == [
        [user, system],
        [user, system, assistant],
        [user, calling, result, system],
        [user, calling, result, system, assistant],
    ]
    assert all(call["add_generation_prompt"] for call in template.calls)
    assert not any(
        call["continue_final_message"] or call["tools"] or call["kwargs"] for call in template.calls
    )


def test_tools_and_kwargs_are_given_and_may_replace_the_renderers_arguments(fake_template: Any) -> None:
    template = fake_template()
    kwargs = {"enable_thinking": False, "add_generation_prompt": False}
    Probe()(template, PLACES[0], REQUEST.replace(tools=TOOLS, kwargs=kwargs))
    (call,) = template.calls
    assert call["tools"] == [PROBE_TOOL]
    assert call["kwargs"] == {"enable_thinking": False}
    assert call["add_generation_prompt"] is False


def test_a_partial_request_is_continued(fake_template: Any) -> None:
    template = fake_template()
    Probe()(template, PLACES[1], REQUEST.replace(partial=True))
    (call,) = template.calls
    assert (call["add_generation_prompt"], call["continue_final_message"]) == (False, True)


@pytest.mark.parametrize(
    ("behaviour", "passing", "why"),
    [
        ("in place", {"user/tail", "user/between", "tool/tail", "tool/between"}, "in place"),
        ("raises", set(), "TemplateError: a system turn may only come first"),
        ("drops", set(), "drops the system turn"),
        ("moves", set(), "moves the system turn before"),
        ("moves to the end", {"user/tail", "tool/tail"}, "assistant turn after the system turn"),
        ("drops tools", {"user/tail", "user/between"}, "does not write the tool turn"),
        ("user only", {"user/tail", "user/between"}, "no tools here"),
    ],
)
def test_verdicts(behaviour: str, passing: set[str], why: str, fake_template: Any) -> None:
    template, probe = fake_template(behaviour), Probe()
    answers = {str(place): probe(template, place, REQUEST) for place in PLACES}
    assert {place for place, answer in answers.items() if answer.in_place} == passing
    assert any(why in answer.why for answer in answers.values())


def test_a_type_error_is_retried_once_without_kwargs_and_tools(fake_template: Any) -> None:
    template = fake_template("refuses kwargs")
    request = REQUEST.replace(tools=TOOLS, kwargs={"x": 1, "add_generation_prompt": True})
    assert Probe()(template, PLACES[0], request).in_place
    first, second = template.calls
    assert first["kwargs"] == {"x": 1}
    assert second["kwargs"] == {}
    assert second["tools"] is None
    assert second["add_generation_prompt"] is False, "a generation prompt that the kwargs brought is gone too"


def test_a_second_type_error_is_a_no(fake_template: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    template = fake_template("refuses kwargs")
    render = template.render
    monkeypatch.setattr(
        template, "render", lambda messages, **given: render(messages, **{**given, "kwargs": {"y": 1}})
    )
    answer = Probe()(template, PLACES[0], REQUEST)
    assert not answer.in_place
    assert "TypeError" in answer.why
    assert len(template.calls) == 2


def test_kwargs_that_ask_for_token_ids_hide_the_markers(fake_template: Any) -> None:
    template = fake_template()
    assert not Probe()(template, PLACES[0], REQUEST.replace(kwargs={"tokenize": True})).in_place
    assert Probe()(template, PLACES[0], REQUEST.replace(kwargs={"tokenize": False})).in_place


def test_an_explicit_no_is_believed_and_an_explicit_yes_is_not(fake_template: Any) -> None:
    declared_no = fake_template("in place", supports=False)
    assert not Probe()(declared_no, PLACES[0], REQUEST).in_place
    assert declared_no.calls == []
    assert not Probe()(fake_template("raises", supports=True), PLACES[0], REQUEST).in_place


def test_answers_are_remembered_by_the_servers_key(fake_template: Any) -> None:
    template, probe = fake_template("raises"), Probe()
    for _ in range(3):
        probe(template, PLACES[0], REQUEST.replace(kwargs={"a": {"b": [1]}}))
    assert len(template.calls) == 1, "a no is remembered too"
    probe(template, PLACES[0], REQUEST.replace(kwargs={"a": {"b": [True]}}))
    assert len(template.calls) == 1, "1 and true are the same key, as they are at the server"
    for different in (
        REQUEST,
        REQUEST.replace(tools=TOOLS),
        REQUEST.replace(partial=True),
        REQUEST.replace(kwargs={"a": {"b": [2]}}),
    ):
        count = len(template.calls)
        probe(template, PLACES[0], different)
        assert len(template.calls) == count + 1
    count = len(template.calls)
    probe(template, PLACES[2], REQUEST)
    assert len(template.calls) == count + 1
    other = fake_template("in place")
    assert probe(other, PLACES[0], REQUEST).in_place


def test_empty_tools_are_no_tools(fake_template: Any) -> None:
    template, probe = fake_template(), Probe()
    probe(template, PLACES[0], REQUEST.replace(tools=()))
    probe(template, PLACES[0], REQUEST)
    assert [call["tools"] for call in template.calls] == [None]


def test_freezing() -> None:
    assert frozen({"b": [1, {"c": None}], "a": (2,)}) == (("a", (2,)), ("b", (1, (("c", None),))))
    assert frozen({3, "x"}) == frozen({"x", 3})
    assert frozen({1: "a", "1": {}}) == (("1", "a"), ("1", ()))
    assert frozen(bytearray(b"x")) == "bytearray(b'x')"


def test_markers_do_not_contain_one_another() -> None:
    markers = [USER_MARKER, TOOL_MARKER, SYSTEM_MARKER, ASSISTANT_MARKER, CALL_ID]
    assert not any(a in b for a in markers for b in markers if a != b)


def test_policies_do_not_share_their_memory(fake_template: Any) -> None:
    template = fake_template()
    messages = tuple(Message({"role": role, "content": "x"}, n) for n, role in enumerate(["user", "system"]))
    first, second = Omlx("omlx"), Omlx("omlx")
    for policy in (first, first, second):
        policy.prepare(Request(messages), template)
    assert len(template.calls) == 2
