"""Texts are found again, whatever a policy does with them."""

from typing import Any

import pytest
from chat_messages import A, S, T, U, request_of
from hypothesis import given
from hypothesis import strategies as st
from request_strategies import check_provenance, requests
from tplaudit.probes.conversation import TOP_LEVEL, Message, Request
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.rewrite.matching import actions_of, matched
from tplaudit.probes.templates.template import ChatTemplate

TEMPLATE = ChatTemplate({"default": "{% for m in messages %}{{ m.content }}{% endfor %}"}, source="test")
POLICIES = ["as-is", "hoist", "hoist+merge", "note+merge", "omlx", "vllm-mlx", "sglang", "llama-cpp"]


@given(requests(), st.sampled_from(POLICIES))
def test_characters_belong_to_the_message_that_the_policy_says(request_: Request, name: str) -> None:
    made = parse_policy(name).prepare(request_, TEMPLATE).request.messages
    found = matched(request_, [message.data for message in made])
    assert [message.data for message in found] == [message.data for message in made]
    check_provenance(found, {TOP_LEVEL, *range(len(request_.messages))})


@pytest.mark.parametrize(
    ("sent", "written", "owners"),
    [
        ([U("yes"), A("no"), U("yes")], [U("yes"), A("no"), U("yes")], [[0] * 3, [1] * 2, [2] * 3]),
        ([U(" abc "), S("def")], [U("abc\n\n[def]")], [[0] * 3 + [1] * 7]),
        ([S("abc"), U("xyz")], [{"role": "system", "content": "made up"}, U("xyz")], [[0] * 7, [1] * 3]),
    ],
)
def test_owners(sent: list[dict[str, Any]], written: list[dict[str, Any]], owners: Any) -> None:
    messages = matched(request_of(sent), written)
    assert [[each.origin(at) for at in range(len(each.content))] for each in messages] == owners


def test_a_call_and_its_result_are_known_by_their_id() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    request = request_of([U("abc"), A(None, tool_calls=calls), T("result"), U("abc")])
    written = [U("abc"), A("", tool_calls=calls), T("cut"), U("abc")]
    assert [message.index for message in matched(request, written)] == [0, 1, 2, 3]


def test_what_was_done() -> None:
    request = request_of([S("first"), U("one"), S("second"), A("reply"), U("two"), S("third"), U("gone")])
    written = [S("first\n\nsecond"), U("one"), A(" reply"), U("two\n\nthird")]
    messages = matched(request, written)
    done = {action.kind: action.messages for action in actions_of(request, messages, "why")}
    assert done == {"hoisted": (2,), "converted": (3,), "noted": (5,), "dropped": (6,)}


def test_parts_keep_their_numbers() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    request = Request((Message({"role": "user", "content": "one"}, 0), Message(U("two"), 1)))
    (message,) = matched(request, [{"role": "user", "content": parts}])
    assert [message.origin(0, part) for part in (0, 1)] == [0, 1]
