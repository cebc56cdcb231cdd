"""MTPLX: the strict hoist of its earlier releases, and the user turns of release 2.12."""

import pytest
from chat_messages import CALL, VECTORS, A, S, T, U, data, part, prepared
from tplaudit.probes.conversation import TOP_LEVEL

MARKED = {"tool_calls": [CALL], "_preserve_role_boundary": True}


@pytest.mark.parametrize("name", ["S1", "S2", "S3", "S4", "N5", "N6"])
def test_vector(name: str) -> None:
    vector = next(vector for vector in VECTORS if vector["id"] == name)
    spec = "mtplx" if vector["merge_consecutive_roles"] else "mtplx:route=none"
    assert data(prepared(spec, vector["messages"])) == vector["expected"]


def test_later_system_turns_become_user_turns_where_they_stand() -> None:
    messages = [S("a"), S(["b", part("c")]), U("u"), A("x"), S(""), S("n"), A("y")]
    after = prepared("mtplx:version=2.12,route=none", messages)
    assert data(after) == [S("a\n\nbc"), U("u"), A("x"), U("n"), A("y")]
    assert [(action.kind, action.messages) for action in after.actions] == [
        ("kept", (0,)),
        ("kept", (1,)),
        ("dropped", (4,)),
        ("noted", (5,)),
    ]


def test_the_user_turn_beside_it_absorbs_it() -> None:
    messages = [S("base"), U("u"), S("n"), A("", tool_calls=[CALL]), T("r"), S("m"), U("v")]
    after = prepared("mtplx:version=2.12", messages)
    assert data(after) == [S("base"), U("u\n\nn"), A("", **MARKED), T("r"), U("m\n\nv")]
    assert [message.origins for message in after.request.messages] == [(0,), (1, 2), (3,), (4,), (5, 6)]


def test_the_release_drops_void_assistants_and_joins_no_calling_ones() -> None:
    messages = [U("u"), A(""), A(None, tool_calls=[CALL]), A("a"), A([part("b"), part("c")])]
    after = prepared("mtplx:version=2.12", messages)
    assert data(after) == [U("u"), A("", **MARKED), A("a\n\nbc")]
    assert ("dropped", (1,)) in [(action.kind, action.messages) for action in after.actions]


@pytest.mark.parametrize("version", ["", ":version=2.12"])
def test_an_anthropic_request(version: str) -> None:
    messages = [
        U(
            [
                part("a"),
                {"type": "tool_result", "tool_use_id": "c1", "content": [part("r"), part("s")]},
                part("b"),
            ]
        ),
        A([{"type": "thinking", "thinking": "t"}, part("x"), part("y")]),
    ]
    after = prepared(
        f"mtplx{version}",
        messages,
        dialect="anthropic-messages",
        system=[
            part("x-anthropic-billing-header: v1"),
            part("You \n X-Anthropic-Billing-Header: z"),
            part("Be"),
        ],
    )
    assert data(after) == [S("You\n\nBe"), U("a"), T("rs"), U("b"), A("xy", reasoning_content="t")]
    assert after.request.messages[0].index == TOP_LEVEL


def test_arguments_that_are_no_object_become_none() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": "[1]"}}
    (turn,) = prepared("mtplx", [A("", tool_calls=[call])]).request.messages
    assert turn.data["tool_calls"] == [CALL]
    assert not prepared("mtplx", [A("a")], partial=True).request.partial
