"""What holds for every request under the servers of the suite `local`."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_strategies import DIALECTS, check_provenance, found, requests
from tplaudit.probes.conversation import SYSTEM_ROLES, TOP_LEVEL, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import Retry, render_prepared
from tplaudit.probes.policies.registry import POLICIES, parse_policy

SPECS = [spec for kind in POLICIES.values() if kind.suite == "local" for spec in kind.variants(2)]


def all_retries(retries: tuple[Retry, ...]) -> list[Retry]:
    return [each for retry in retries for each in (retry, *all_retries(retry.retries))]


@settings(max_examples=800, deadline=None)
@given(requests(), st.sampled_from(SPECS))
def test_policies(fake_template: Any, request_: Request, spec: str) -> None:
    template = fake_template("raises")
    before = copy.deepcopy(request_)
    after = parse_policy(spec).prepare(request_, template)
    assert request_ == before, "the input is not mutated"
    if not spec.startswith("mtplx"):  # which looks at the generation prompt where thinking is off
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
    if spec.startswith(
        "mtplx"
    ):  # which writes how tools are called into a turn, each time that there are any
        request_ = request_.replace(tools=None)
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
