"""What holds for every request in every dialect, well-formed or not, on the routes of oMLX and its forks."""

import copy
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import SYSTEM_ROLES, TOP_LEVEL, Dialect, Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import render_prepared
from tplaudit.probes.policies.registry import POLICIES as REGISTERED
from tplaudit.probes.policies.registry import parse_policy

KINDS = [kind for kind in REGISTERED.values() if kind.suite == "forks"]
NAMES = [kind.name for kind in KINDS]
#: With `route=none` a server converts nothing; test_properties.py has what holds then.
POLICIES = [spec for kind in KINDS for spec in kind.variants(2) if "route=none" not in spec]
#: What the fake template's source says: whether it knows tools, and whether it keeps reasoning.
SOURCES = ["", "== 'tool' tool_calls", "preserve_thinking", "== 'tool' tool_calls preserve_thinking"]
BEHAVIOURS = ["in place", "raises", "user only", "refuses kwargs"]
WORD = re.compile(r"⟦(-?\d+)\.\d+⟧")
JUNK = st.sampled_from(
    [7, None, {}, {"type": "search_result"}, {"type": "text"}, {"type": "text", "text": 3}]
)


def word(n: int, part: int = 0) -> str:
    """A text that no other text contains, with the index of its message."""
    return f"⟦{n}.{part}⟧"


def text(n: int, part: int) -> dict[str, Any]:
    return {"type": "text", "text": word(n, part)}


@st.composite
def chat_message(draw: st.DrawFn, n: int) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "developer", "user", "assistant", "tool"]))
    image = {"type": "image_url", "image_url": {"url": "x"}}
    parts = st.lists(
        st.one_of(st.sampled_from([text(n, 1), text(n, 2), word(n, 3), image]), JUNK), max_size=3
    )
    content = draw(st.one_of(st.just(word(n)), st.just(word(n)), parts, st.sampled_from(["", None, 7])))
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant" and draw(st.booleans()):
        arguments = draw(st.sampled_from(['{"a": 1}', {"a": 1}, "{", None]))
        calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]
        message["tool_calls"] = draw(st.sampled_from([calls, [None, {}], [], 7]))
    if draw(st.integers(0, 4)) == 0:
        message["reasoning_content"] = draw(st.sampled_from([word(n, 9), "", None, 7]))
    if draw(st.integers(0, 4)) == 0:
        message["tool_call_id"] = "c"
    return message


@st.composite
def anthropic_message(draw: st.DrawFn, n: int) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "assistant", "user", "assistant", "system"]))
    source = {"type": "base64", "media_type": "image/png", "data": "AA"}
    results = st.sampled_from(
        [word(n, 4), [text(n, 5)], [text(n, 6), {"type": "image", "source": source}], None]
    )
    blocks = {
        "system": [text(n, 1), text(n, 2)],
        "user": [
            text(n, 1),
            text(n, 2),
            {
                "type": "tool_result",
                "tool_use_id": "c",
                "content": draw(results),
                "is_error": draw(st.booleans()),
            },
            {"type": "image", "source": source},
            {"type": "document", "source": {"media_type": "application/pdf"}},
        ],
        "assistant": [
            text(n, 1),
            {"type": "thinking", "thinking": word(n, 9)},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ],
    }
    lists = st.lists(
        st.one_of(st.sampled_from(blocks[role]), st.sampled_from(blocks[role]), JUNK), max_size=4
    )
    return {"role": role, "content": draw(st.one_of(st.just(word(n)), lists, st.sampled_from(["", None, 7])))}


@st.composite
def responses_item(draw: st.DrawFn, n: int) -> dict[str, Any]:
    part = {"type": "input_text", "text": word(n, 1)}
    image = {"type": "input_image", "image_url": "x"}
    content = st.sampled_from([word(n), [part], [part, image], [image], [7], None])
    role = draw(st.sampled_from(["user", "assistant", "system", "developer"]))
    items = [
        {"type": "message", "role": role, "content": draw(content)},
        {"role": role, "content": draw(content)},
        {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": draw(st.sampled_from(["{}", "{", ""])),
        },
        {"type": "function_call_output", "call_id": "c", "output": draw(content)},
        {"type": "reasoning", "summary": draw(st.sampled_from([[{"text": "why"}], [], None, [7]]))},
        {"type": "web_search_call"},
    ]
    return draw(st.sampled_from(items))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    dialect: Dialect = draw(st.sampled_from(["openai-chat", "anthropic-messages", "openai-responses"]))
    make = {
        "openai-chat": chat_message,
        "anthropic-messages": anthropic_message,
        "openai-responses": responses_item,
    }[dialect]
    system: Any = None
    if dialect != "openai-chat":
        system = draw(st.sampled_from([None, "", word(TOP_LEVEL), [text(TOP_LEVEL, 1), text(TOP_LEVEL, 2)]]))
    return Request(
        tuple(Message(draw(make(n)), n) for n in range(draw(st.integers(0, 7)))),
        tools=draw(
            st.sampled_from([None, (), ({"type": "function", "function": {"name": "f"}}, {"name": "g"})])
        ),
        kwargs=draw(st.sampled_from([{}, {"enable_thinking": False}, {"reasoning_effort": "High"}])),
        partial=draw(st.booleans()),
        dialect=dialect,
        system=system,
        fields=draw(
            st.sampled_from([{}, {"thinking": {"type": "enabled", "budget_tokens": 5}}, {"thinking": 7}])
        ),
    )


def found(value: Any) -> set[str]:
    return {match.group() for match in WORD.finditer(repr(value))}


def kept_words(request: Request) -> set[str]:
    """The words that the servers keep.

    A join of two turns may lose reasoning; the multimodal extraction loses bare strings beside an image.
    """
    words = set()
    for message in request.messages:
        words |= {each for each in found(message.data) if not each.endswith((".9⟧", ".3⟧"))}
        if not isinstance(message.content, list) or "image_url" not in repr(message.content):
            words |= {each for each in found(message.content) if each.endswith(".3⟧")}
    if isinstance(request.system, str) or request.dialect == "anthropic-messages":
        words |= found(request.system)
    return words


def only_images(message: Message) -> bool:
    content = message.content
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "input_image" for part in content
    )


@settings(max_examples=500, deadline=None)
@given(requests(), st.sampled_from(POLICIES), st.sampled_from(SOURCES), st.sampled_from(BEHAVIOURS))
def test_routes(fake_template: Any, request_: Request, name: str, source: str, behaviour: str) -> None:
    template = fake_template(behaviour)
    template.text = source
    before = copy.deepcopy(request_)
    after = parse_policy(name).prepare(request_, template)
    assert request_ == before, "the input is not mutated"
    assert (after.request.dialect, after.request.system) == ("openai-chat", None)

    output = after.request.messages
    assert kept_words(request_) <= found([message.data for message in output]), "no text is lost"
    others = [
        message.index for message in output if message.role not in SYSTEM_ROLES and not only_images(message)
    ]
    assert others == sorted(others), "messages keep their order, but for images that follow the tool results"
    known = {TOP_LEVEL, *range(len(request_.messages))}
    assert {index for message in output for index in message.origins} <= known
    assert {index for action in after.actions for index in action.messages} <= known

    for message in output:
        contents = [message.content] if isinstance(message.content, str) else message.content
        for part, content in enumerate(contents if isinstance(contents, list) else []):
            number = None if isinstance(message.content, str) else part
            written = content.get("text") if isinstance(content, dict) else content
            for match in WORD.finditer(written if isinstance(written, str) else ""):
                owners = {message.origin(at, number) for at in range(*match.span())}
                assert owners == {int(match.group(1))}
        for match in WORD.finditer(str(message.data.get("reasoning_content"))):
            assert message.index == int(match.group(1))


@settings(max_examples=200, deadline=None)
@given(requests(), st.sampled_from(["flyto-mlx:route=none", "fusion-mlx", "omlx:route=chat"]))
def test_what_was_prepared_once_stays_as_it_is(fake_template: Any, request_: Request, name: str) -> None:
    if name != "fusion-mlx" and request_.dialect != "openai-chat":
        return
    template = fake_template("raises")
    template.text = "== 'tool' tool_calls"
    once = parse_policy(name).prepare(request_, template).request
    twice = parse_policy(name).prepare(once, template).request
    assert [message.data for message in twice.messages] == [message.data for message in once.messages]
    assert (twice.kwargs, twice.tools) == (once.kwargs, once.tools)


class Rendering:
    """A template object for second attempts: `render_prepared` needs `render_request`."""

    def __init__(self, refuse: str) -> None:
        self.refuse = refuse

    def render_request(self, request: Request, *, profile: str) -> str:
        if self.refuse == "kwargs" and request.kwargs:
            raise RenderError("TypeError", "unexpected keyword")
        if self.refuse == "tools" and request.tools:
            raise RenderError("TypeError", "no tools")
        return "prompt"


@settings(max_examples=200, deadline=None)
@given(requests(), st.sampled_from(NAMES), st.sampled_from(["kwargs", "tools"]))
def test_a_type_error_over_kwargs_or_tools_is_always_answered(
    fake_template: Any, request_: Request, name: str, refuse: str
) -> None:
    prepared = parse_policy(name).prepare(request_, fake_template())
    prompt, used = render_prepared(prepared, Rendering(refuse))  # type: ignore[arg-type]
    assert prompt == "prompt"
    changed = bool(prepared.request.kwargs if refuse == "kwargs" else prepared.request.tools)
    assert (used.actions[-1:] != () and used.actions[-1].kind == "retried") == changed


@pytest.mark.parametrize("name", NAMES)
def test_a_long_conversation_takes_a_few_milliseconds(name: str, fake_template: Any) -> None:
    turns = [
        ("system", "s" * 4000),
        *((role, "t" * 900) for _ in range(300) for role in ("user", "assistant")),
    ]
    request = Request(
        tuple(Message({"role": role, "content": content}, n) for n, (role, content) in enumerate(turns))
    )
    policy, template = parse_policy(name), fake_template()
    times = []
    for _ in range(20):
        start = time.process_time()
        policy.prepare(request, template)
        times.append(time.process_time() - start)
    assert min(times) < 0.02
