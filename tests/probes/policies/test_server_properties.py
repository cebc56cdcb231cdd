"""What holds for every list of messages under the servers of the suite `engines`."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from request_strategies import DIALECTS
from request_strategies import requests as requests_of_apis
from tplaudit.probes.conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Request
from tplaudit.probes.policies.registry import POLICIES as REGISTERED
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

TURN = "<{{ m.role }}>{{ m.content }}"
TEMPLATES = [
    ChatTemplate({"default": text}, source="test")
    for text in (
        "{% for m in messages %}" + TURN + "{% endfor %}",
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('x') }}{% endif %}"
        + TURN
        + "{% endfor %}",
        "{% for m in messages if m.role != 'system' %}" + TURN + "{% endfor %}",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
    )
]
KINDS = [kind for kind in REGISTERED.values() if kind.suite == "engines"]
NAMES = [kind.name for kind in KINDS]
POLICIES = [spec for kind in KINDS for spec in kind.variants(2)]
#: Applied to their own result they change nothing; llama.cpp folds one more leading system turn each time,
#: and what vLLM joins for a developer is a text also where it makes lists of others.
IDEMPOTENT = [name for name in POLICIES if name.split(":")[0] not in ("llama-cpp", "vllm")]
ROLES = ["system", "developer", "user", "assistant", "tool"]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


def word(n: int, part: int = 0) -> str:
    return f"<{n}.{part}>"


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages = []
    for n in range(draw(st.integers(0, 7))):
        parts = [{"type": "text", "text": word(n, k)} for k in range(3)]
        extra = [{"type": "text", "text": ""}, {"type": "image_url", "image_url": {"url": "x"}}]
        lists = st.lists(st.sampled_from([*parts, *extra]), max_size=4, unique_by=repr)
        content = draw(st.one_of(st.just(word(n)), lists, st.sampled_from(["", None, " ", 0])))
        message: dict[str, Any] = {"role": draw(st.sampled_from(ROLES))}
        if draw(st.integers(0, 9)):
            message["content"] = content
        if draw(st.integers(0, 5)) == 0:
            message["tool_calls"] = [CALL]
        messages.append(message)
    return messages


def requests() -> st.SearchStrategy[Request]:
    return st.builds(
        lambda messages, tools, kwargs, partial: Request(
            tuple(Message(data, n) for n, data in enumerate(messages)),
            tools=tools,
            kwargs=kwargs,
            partial=partial,
        ),
        conversations(),
        st.sampled_from([None, (), ({"type": "function", "function": {"name": "f"}},)]),
        st.sampled_from([{}, {"enable_thinking": False}]),
        st.booleans(),
    )


def words(value: Any) -> set[str]:
    return {f"<{rest.split('>')[0]}>" for rest in repr(value).split("<")[1:] if rest[0].isdigit()}


def texts(message: Message) -> list[tuple[int | None, str]]:
    if isinstance(message.content, str):
        return [(None, message.content)]
    parts = message.content if isinstance(message.content, list) else []
    return [(n, part["text"]) for n, part in enumerate(parts) if "text" in part]


@settings(max_examples=300, deadline=None)
@given(requests(), st.sampled_from(POLICIES), st.sampled_from(TEMPLATES))
def test_policies(request_: Request, name: str, template: ChatTemplate) -> None:
    before = copy.deepcopy(request_)
    policy = parse_policy(name)
    after = policy.prepare(request_, template)
    assert request_ == before, "the input is not mutated"
    messages, output = request_.messages, after.request.messages

    lost = words([message.data for message in messages]) - words([message.data for message in output])
    dropped = {index for action in after.actions if action.kind == "dropped" for index in action.messages}
    assert {int(each[1:].split(".")[0]) for each in lost} <= dropped, (
        "only what is said to be dropped is lost"
    )
    if lost:
        # llama.cpp loses a system text that no turn carries; one that it continues is set aside by then.
        continued = bool(messages) and (request_.partial or messages[-1].role == "assistant")
        assert name.startswith("llama-cpp")
        assert len(messages) == len(output) + 1 == (2 if continued and after.error is None else 1)

    others = [message.index for message in messages if message.role not in SYSTEM_ROLES]
    left = [message.index for message in output if message.role not in SYSTEM_ROLES]
    assert left == sorted(left)
    assert set(left) <= set(others)
    if not name.startswith("ollama"):
        assert left == others

    mentioned = {index for action in after.actions for index in action.messages}
    assert {message.index for message in messages if message.role in SYSTEM_ROLES} <= mentioned
    assert mentioned <= {message.index for message in messages}
    if name in IDEMPOTENT:
        twice = policy.prepare(after.request, template)
        assert [message.data for message in twice.request.messages] == [message.data for message in output]


@settings(max_examples=300, deadline=None)
@given(requests(), st.sampled_from(POLICIES), st.sampled_from(TEMPLATES))
def test_provenance(request_: Request, name: str, template: ChatTemplate) -> None:
    for message in parse_policy(name).prepare(request_, template).request.messages:
        for part, text in texts(message):
            mine = [piece.start for piece in message.pieces if piece.part == part]
            assert mine == sorted(set(mine))
            assert not message.pieces or mine[0] == 0, "pieces cover every text of a built content"
            assert not mine or mine[-1] < max(len(text), 1)
            for found in words(text):
                at, owner = text.find(found), int(found[1:].split(".")[0])
                assert {message.origin(offset, part) for offset in range(at, at + len(found))} == {owner}


@settings(max_examples=400, deadline=None)
@given(requests_of_apis(DIALECTS[1:], odd=True), st.sampled_from(NAMES), st.sampled_from(TEMPLATES))
def test_requests_of_other_dialects(request_: Request, name: str, template: ChatTemplate) -> None:
    after = parse_policy(name).prepare(request_, template).request
    assert after.dialect == "openai-chat"
    assert after.system is None
    assert {message.index for message in after.messages} <= {TOP_LEVEL, *range(len(request_.messages))}
