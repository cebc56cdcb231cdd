"""What holds for every list of messages, well-formed or not, without a route's conversions."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import SYSTEM_ROLES, Message, Request
from tplaudit.probes.policies.base import Prepared
from tplaudit.probes.policies.registry import POLICIES, parse_policy

NAMES = [kind.name for kind in POLICIES.values() if kind.suite == "plain"]
NAMES += ["omlx:route=none", "omlx-strict:route=none", "omlx:route=none,tool_note=on"]
ROLES = ["system", "developer", "user", "assistant", "tool", "latest_reminder"]
BEHAVIOURS = ["in place", "raises", "drops", "moves", "user only", "refuses kwargs"]


def word(n: int, part: int = 0) -> str:
    """A text that no other text contains."""
    return f"<{n}.{part}>"


@st.composite
def contents(draw: st.DrawFn, n: int) -> Any:
    texts: list[Any] = [{"type": "text", "text": word(n, k)} for k in range(3)]
    parts = st.one_of(
        st.sampled_from(texts),
        st.just({"type": "text", "text": ""}),
        st.just({"type": "text", "text": None}),
        st.just({"type": "image_url", "image_url": {"url": "x"}}),
        st.just({"text": word(n, 4)}),
        st.sampled_from([word(n, 5), 7, None, {"type": "text", "text": 3}]),
    )
    usual = st.one_of(st.just(word(n)), st.lists(parts, max_size=3, unique_by=repr))
    odd = st.sampled_from(["", None, 7, 0, {"text": word(n)}, {}, True])
    return draw(st.one_of(usual, usual, usual, odd))


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages = []
    for n in range(draw(st.integers(0, 8))):
        message: dict[str, Any] = {"role": draw(st.sampled_from(ROLES))}
        if draw(st.integers(0, 9)):
            message["content"] = draw(contents(n))
        for key, value in (
            ("tool_calls", [{"id": "c", "function": {"name": "f", "arguments": {}}}]),
            ("_preserve_role_boundary", True),
            ("tool_call_id", "c"),
            ("name", "x"),
        ):
            if draw(st.integers(0, 7)) == 0:
                message[key] = value
        messages.append(message)
    return messages


def requests() -> st.SearchStrategy[Request]:
    return st.builds(
        lambda messages, partial, tools, kwargs: Request(
            tuple(Message(data, n) for n, data in enumerate(messages)),
            tools=tools,
            kwargs=kwargs,
            partial=partial,
        ),
        conversations(),
        st.booleans(),
        st.sampled_from([None, (), ({"type": "function", "function": {"name": "f"}},)]),
        st.sampled_from(
            [{}, {"enable_thinking": False}, {"add_generation_prompt": False, "x": [{"y": {1}}]}]
        ),
    )


def words(content: Any) -> set[str]:
    """The words that stand in a content, wherever in it."""
    return {f"<{rest.split('>')[0]}>" for rest in repr(content).split("<")[1:]}


def kept_words(message: Message) -> set[str]:
    """The words that no server may lose: of a system list, oMLX drops what does not call itself text."""
    content = message.content
    if message.data["role"] in SYSTEM_ROLES and isinstance(content, list):
        texts = [
            part for part in content if isinstance(part, str) or (part and part != 7 and part.get("type"))
        ]
        return words(texts)
    return words(content)


def texts(message: Message) -> list[tuple[int | None, str]]:
    """The strings of a content, each with its part."""
    content = message.content
    if isinstance(content, str):
        return [(None, content)]
    if not isinstance(content, list):
        return []
    found = [
        (n, part if isinstance(part, str) else (part or {}).get("text"))
        for n, part in enumerate(content)
        if part != 7
    ]
    return [(n, text) for n, text in found if isinstance(text, str)]


def prepare(name: str, request: Request, template: Any) -> Prepared:
    return parse_policy(name).prepare(request, template)


@settings(max_examples=400, deadline=None)
@given(requests(), st.sampled_from(NAMES), st.sampled_from(BEHAVIOURS))
def test_policies(fake_template: Any, request_: Request, name: str, behaviour: str) -> None:
    template = fake_template(behaviour)
    before = copy.deepcopy(request_)
    after = prepare(name, request_, template)
    assert request_ == before, "the input is not mutated"
    messages, output = request_.messages, after.request.messages

    wanted = set().union(*map(kept_words, messages))
    assert wanted <= words([message.data for message in output]), "no text is lost"

    others = [message.index for message in messages if message.role not in SYSTEM_ROLES]
    left = [message.index for message in output if message.role not in SYSTEM_ROLES]
    assert left == sorted(left)
    assert set(left) <= set(others)
    if name in ("as-is", "hoist", "note"):
        assert left == others, "every message that is not a system message stays, in order"

    twice = prepare(name, after.request, template)
    assert [message.data for message in twice.request.messages] == [message.data for message in output]

    mentioned = {index for action in after.actions for index in action.messages}
    assert {message.index for message in messages if message.role in SYSTEM_ROLES} <= mentioned
    assert mentioned <= {message.index for message in messages}


@settings(max_examples=400, deadline=None)
@given(requests(), st.sampled_from(NAMES), st.sampled_from(BEHAVIOURS))
def test_provenance(fake_template: Any, request_: Request, name: str, behaviour: str) -> None:
    for message in prepare(name, request_, fake_template(behaviour)).request.messages:
        for part, text in texts(message):
            mine = [piece.start for piece in message.pieces if piece.part == part]
            assert mine == sorted(set(mine))
            assert not message.pieces or mine[0] == 0, "pieces cover every text of a built content"
            assert not mine or mine[-1] < max(len(text), 1)
            for found in words(text):
                at = text.find(found)
                owner = int(found[1:].split(".")[0])
                assert {message.origin(offset, part) for offset in range(at, at + len(found))} == {owner}
                assert owner in message.origins


@settings(max_examples=100, deadline=None)
@given(requests(), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_provenance_of_one_policy_after_another(
    fake_template: Any, request_: Request, one: str, two: str
) -> None:
    between = prepare(one, request_, fake_template("raises")).request
    for message in prepare(two, between, fake_template("in place")).request.messages:
        for part, text in texts(message):
            for found in words(text):
                at = text.find(found)
                assert {message.origin(offset, part) for offset in (at, at + len(found) - 1)} == {
                    int(found[1:].split(".")[0])
                }
