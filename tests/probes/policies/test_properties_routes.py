"""What holds for every request in every dialect, well-formed or not, on the routes of oMLX and its forks."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from request_strategies import BARE, REASONING, WORD, check_provenance, found, requests
from tplaudit.probes.conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Request
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


def kept_words(request: Request, name: str) -> set[str]:
    """The words that the servers keep.

    A join of two turns may lose reasoning; the multimodal extraction loses bare strings beside an image;
    fusion-mlx leaves out Responses items without a type.
    """
    words = set()
    for message in request.messages:
        responses = request.dialect == "openai-responses"
        if responses and name.startswith("fusion-mlx") and not message.data.get("type"):
            continue
        words |= {each for each in found(message.data) if not each.endswith((f".{REASONING}⟧", f".{BARE}⟧"))}
        if not isinstance(message.content, list) or "image_url" not in repr(message.content):
            words |= {each for each in found(message.content) if each.endswith(f".{BARE}⟧")}
    if isinstance(request.system, str) or request.dialect == "anthropic-messages":
        words |= found(request.system)
    return words


def shown(output: tuple[Message, ...]) -> set[str]:
    """The words of the messages, those within JSON text with escapes too."""
    data = [message.data for message in output]
    written = json.dumps(data, ensure_ascii=False, default=str)
    return found(data) | found(written.replace("\\\\u27e6", "⟦").replace("\\\\u27e7", "⟧"))


def only_images(message: Message) -> bool:
    content = message.content
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "input_image" for part in content
    )


@settings(max_examples=500, deadline=None)
@given(requests(odd=True), st.sampled_from(POLICIES), st.sampled_from(SOURCES), st.sampled_from(BEHAVIOURS))
def test_routes(fake_template: Any, request_: Request, name: str, source: str, behaviour: str) -> None:
    template = fake_template(behaviour)
    template.text = source
    before = copy.deepcopy(request_)
    after = parse_policy(name).prepare(request_, template)
    assert request_ == before, "the input is not mutated"
    assert (after.request.dialect, after.request.system) == ("openai-chat", None)

    output = after.request.messages
    if after.error is None:
        assert kept_words(request_, name) <= shown(output), "no text is lost"
    others = [
        message.index for message in output if message.role not in SYSTEM_ROLES and not only_images(message)
    ]
    assert others == sorted(others), "messages keep their order, but for images that follow the tool results"
    known = {TOP_LEVEL, *range(len(request_.messages))}
    assert {index for action in after.actions for index in action.messages} <= known
    check_provenance(output, known)
    for message in output:
        for match in WORD.finditer(str(message.data.get("reasoning_content"))):
            assert message.index == int(match.group(1))


@settings(max_examples=200, deadline=None)
@given(
    requests(odd=True), st.sampled_from(["flyto-mlx:route=none", "fusion-mlx:route=none", "omlx:route=chat"])
)
def test_what_was_prepared_once_stays_as_it_is(fake_template: Any, request_: Request, name: str) -> None:
    if request_.dialect != "openai-chat":
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
@given(requests(odd=True), st.sampled_from(NAMES), st.sampled_from(["kwargs", "tools"]))
def test_a_type_error_over_kwargs_or_tools_is_always_answered(
    fake_template: Any, request_: Request, name: str, refuse: str
) -> None:
    prepared = parse_policy(name).prepare(request_, fake_template())
    if prepared.error is not None:
        return  # the server refuses such a request
    prompt, used = render_prepared(prepared, Rendering(refuse))  # type: ignore[arg-type]
    assert prompt == "prompt"
    changed = bool(prepared.request.kwargs if refuse == "kwargs" else prepared.request.tools)
    assert (used.actions[-1:] != () and used.actions[-1].kind == "retried") == changed
