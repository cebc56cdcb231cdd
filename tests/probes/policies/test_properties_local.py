"""What holds for every request under the servers of the suite `local`."""

import copy
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import SYSTEM_ROLES, TOP_LEVEL, Dialect, Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import Retry, render_prepared
from tplaudit.probes.policies.registry import POLICIES, parse_policy

KINDS = [kind for kind in POLICIES.values() if kind.suite == "local"]
SPECS = [spec for kind in KINDS for spec in kind.variants(2)]
DIALECTS: tuple[Dialect, ...] = ("openai-chat", "anthropic-messages", "openai-responses")
WORD = re.compile(r"⟦(-?\d+)\.\d+⟧")
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def word(n: int, part: int = 0) -> str:
    """A text that no other text contains, with the index of its message."""
    return f"⟦{n}.{part}⟧"


def part(n: int, number: int, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": word(n, number)}


@st.composite
def chat_message(draw: st.DrawFn, n: int) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "developer", "user", "user", "assistant", "assistant", "tool"]))
    lists = st.lists(
        st.sampled_from([part(n, 1), part(n, 2), {"type": "text", "text": ""}, IMAGE]), max_size=3
    )
    content = draw(st.one_of(st.just(word(n)), st.just(word(n)), lists, st.sampled_from(["", None])))
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant" and draw(st.booleans()):
        arguments = draw(st.sampled_from(['{"a": 1}', {"a": 1}, "oops", "[1]", None]))
        function = {"name": "f", "arguments": arguments}
        message["tool_calls"] = draw(st.sampled_from([[{**CALL, "function": function}], [], [None], 7]))
    for key, value in (("name", "x"), ("tool_call_id", "c1"), ("reasoning_content", "why")):
        if draw(st.integers(0, 5)) == 0:
            message[key] = value
    return message


@st.composite
def anthropic_message(draw: st.DrawFn, n: int) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "user", "assistant", "assistant", "system"]))
    results = [word(n, 3), [part(n, 4), part(n, 5)], None]
    blocks = {
        "user": [
            part(n, 1),
            part(n, 2),
            {"type": "tool_result", "tool_use_id": "c1", "content": draw(st.sampled_from(results))},
            {"type": "image", "source": {"type": "url", "url": "x"}},
        ],
        "assistant": [
            part(n, 1),
            {"type": "thinking", "thinking": "why"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ],
        "system": [part(n, 1), part(n, 2)],
    }[role]
    lists = st.lists(st.sampled_from([*blocks, {"type": "text", "text": ""}, 7]), max_size=4)
    return {"role": role, "content": draw(st.one_of(st.just(word(n)), lists, st.sampled_from(["", None])))}


@st.composite
def responses_item(draw: st.DrawFn, n: int) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "assistant", "system", "developer"]))
    content = draw(st.sampled_from([word(n), [part(n, 1, "input_text"), part(n, 2, "input_text")], [], None]))
    items = [
        {"type": "message", "role": role, "content": content},
        {"role": role, "content": content},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "arguments": draw(st.sampled_from(["{}", "x"])),
        },
        {"type": "function_call_output", "call_id": "c1", "output": word(n, 3)},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "why"}],
            "content": [{"text": "so"}],
        },
        {"type": "web_search_call"},
    ]
    return draw(st.sampled_from([*items[:2], *items]))


MESSAGES = dict(zip(DIALECTS, (chat_message, anthropic_message, responses_item), strict=True))


@st.composite
def requests(draw: st.DrawFn, dialects: tuple[Dialect, ...] = DIALECTS) -> Request:
    dialect = draw(st.sampled_from(dialects))
    systems = [None, "", word(TOP_LEVEL)]
    if dialect == "anthropic-messages":
        systems.append([part(TOP_LEVEL, 1), part(TOP_LEVEL, 2)])  # type: ignore[arg-type]
    return Request(
        tuple(Message(draw(MESSAGES[dialect](n)), n) for n in range(draw(st.integers(0, 7)))),
        tools=draw(st.sampled_from([None, (), ({"type": "function", "function": {"name": "f"}},)])),
        kwargs=draw(st.sampled_from([{}, {"enable_thinking": False}, {"x": [1]}])),
        partial=draw(st.booleans()),
        dialect=dialect,
        system=None if dialect == "openai-chat" else draw(st.sampled_from(systems)),
        fields=draw(
            st.sampled_from([{}, {"thinking": {"type": "enabled"}}, {"thinking": 7, "model": "x-coder"}])
        ),
    )


def found(value: Any) -> set[str]:
    return {match.group() for match in WORD.finditer(repr(value))}


def check_provenance(messages: tuple[Message, ...], known: set[int]) -> None:
    for message in messages:
        assert set(message.origins) <= known
        contents = [message.content] if isinstance(message.content, str) else message.content
        for number, content in enumerate(contents if isinstance(contents, list) else []):
            part = None if isinstance(message.content, str) else number
            written = content.get("text") if isinstance(content, dict) else content
            for match in WORD.finditer(written if isinstance(written, str) else ""):
                assert {message.origin(at, part) for at in range(*match.span())} == {int(match.group(1))}


def all_retries(retries: tuple[Retry, ...]) -> list[Retry]:
    return [each for retry in retries for each in (retry, *all_retries(retry.retries))]


@settings(max_examples=800, deadline=None)
@given(requests(), st.sampled_from(SPECS))
def test_policies(fake_template: Any, request_: Request, spec: str) -> None:
    template = fake_template("raises")
    before = copy.deepcopy(request_)
    after = parse_policy(spec).prepare(request_, template)
    assert request_ == before, "the input is not mutated"
    assert not template.calls, "none of these servers tries the template first"
    known = {TOP_LEVEL, *range(len(request_.messages))}
    assert {index for action in after.actions for index in action.messages} <= known
    check_provenance(after.request.messages, known)
    for retry in all_retries(after.retries):
        check_provenance(retry.request.messages, known)

    roles = [(message.index, message.data.get("role")) for message in after.request.messages]
    others = [index for index, role in roles if role not in SYSTEM_ROLES]
    assert others == sorted(others), "messages keep their order"
    if after.error is None and "route=none" not in spec:
        assert (after.request.dialect, after.request.system) == ("openai-chat", None)
        told = [message.data for message in after.request.messages]
        assert found([[message.data for message in request_.messages], request_.system]) <= found(told)


@settings(max_examples=300, deadline=None)
@given(requests(DIALECTS[:1]), st.sampled_from([spec for spec in SPECS if "relocate" not in spec]))
def test_what_was_prepared_once_stays_as_it_is(fake_template: Any, request_: Request, spec: str) -> None:
    policy, template = parse_policy(spec), fake_template()
    once = policy.prepare(request_, template)
    if once.error is None:
        twice = policy.prepare(once.request, template).request
        assert [message.data for message in twice.messages] == [
            message.data for message in once.request.messages
        ]
        assert (twice.kwargs, twice.tools) == (once.request.kwargs, once.request.tools)


class Complaining:
    """A template that refuses every request with one of the errors that Rapid-MLX answers."""

    def __init__(self, kind: str, message: str) -> None:
        self.error = RenderError(kind, message)
        self.text = ""
        self.renders = 0

    def render_request(self, request: Request, *, profile: str) -> str:
        self.renders += 1
        raise self.error


@settings(max_examples=200, deadline=None)
@given(
    requests(),
    st.sampled_from(SPECS),
    st.sampled_from(
        [
            ("TemplateError", "System message must be at the beginning."),
            ("TemplateError", "conversation roles must alternate"),
            ("TypeError", 'can only concatenate str (not "dict") to str'),
        ]
    ),
)
def test_a_hopeless_template_is_given_up(request_: Request, spec: str, complaint: tuple[str, str]) -> None:
    template: Any = Complaining(*complaint)
    after = parse_policy(spec).prepare(request_, template)
    with pytest.raises(RenderError) as caught:
        render_prepared(after, template)
    assert caught.value is (after.error or template.error)
    assert template.renders <= 8


@pytest.mark.parametrize("spec", [spec for kind in KINDS for spec in kind.variants()])
def test_a_long_conversation_takes_a_few_milliseconds(spec: str, fake_template: Any) -> None:
    turns = [
        ("system", "s" * 4000),
        *((role, "t" * 900) for _ in range(300) for role in ("user", "assistant")),
    ]
    request = Request(
        tuple(Message({"role": role, "content": content}, n) for n, (role, content) in enumerate(turns))
    )
    policy, template = parse_policy(spec), fake_template()
    times = []
    for _ in range(10):
        start = time.process_time()
        policy.prepare(request, template)
        times.append(time.process_time() - start)
    assert min(times) < 0.02
