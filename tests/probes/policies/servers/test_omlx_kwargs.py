"""The merge of chat-template kwargs: what the server's own function returned, and the steps to it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.servers.omlx_kwargs import (
    Merge,
    MergedPrompt,
    ModelSettings,
    merge_kwargs,
    merged_prompt,
    retried,
)
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.text import common_prefix

CASE = Path(__file__).parents[3] / "cases" / "29-strict-signature"


def layer_of(merge: Merge, key: str) -> str | None:
    """Return the layer that set the value which a key ended up with."""
    layers = [step.layer for step in merge.steps if step.key == key and step.outcome in ("set", "replaced")]
    return layers[-1] if layers else None


# Inputs and results of jundot/omlx's merge_chat_template_kwargs (0.5.3): settings, request, options, result.
VECTORS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any], dict[str, Any]]] = {
    "K1": (
        {"chat_template_kwargs": {"enable_thinking": True, "x": 1}},
        {"x": 2},
        {},
        {"enable_thinking": True, "x": 2},
    ),
    "K2": (
        {"chat_template_kwargs": {"enable_thinking": True}, "enable_thinking": False},
        None,
        {},
        {"enable_thinking": False},
    ),
    "K3": (
        {"chat_template_kwargs": {"x": 1}, "forced_ct_kwargs": ("x",)},
        {"x": 2, "y": 3},
        {},
        {"x": 1, "y": 3},
    ),
    "K4": ({"forced_ct_kwargs": ("x",)}, {"x": 2}, {}, {}),
    "K5": (
        {"enable_thinking": False, "forced_ct_kwargs": ("enable_thinking",)},
        {"enable_thinking": True},
        {"preserve_thinking_default": True},
        {"enable_thinking": False},
    ),
    "K6": ({}, None, {"thinking_budget": 512}, {"enable_thinking": True}),
    "K7": (
        {},
        {"enable_thinking": False},
        {"thinking_budget": 512, "preserve_thinking_default": True},
        {"enable_thinking": False},
    ),
    "K8": ({}, None, {"preserve_thinking_default": True}, {"preserve_thinking": True}),
    "K9": (
        {"preserve_thinking": False},
        None,
        {"preserve_thinking_default": True},
        {"preserve_thinking": False},
    ),
    "K10": (
        {},
        {"preserve_thinking": False},
        {"preserve_thinking_default": True},
        {"preserve_thinking": False},
    ),
    "K11": (
        {},
        {"enable_thinking": None},
        {"preserve_thinking_default": True},
        {"enable_thinking": None, "preserve_thinking": True},
    ),
    "K12": (
        {"thinking_budget_enabled": True, "thinking_budget_tokens": 100},
        None,
        {},
        {"enable_thinking": True},
    ),
    "K13": ({"thinking_budget_enabled": True, "thinking_budget_tokens": 0}, None, {}, {}),
}


def merge(name: str) -> tuple[Merge, dict[str, Any]]:
    settings, request, options, result = VECTORS[name]
    return merge_kwargs(ModelSettings(**settings), request, **options), result


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    merged, result = merge(name)
    assert merged.kwargs == result
    assert list(merged.kwargs) == list(result)


def layers(merged: Merge) -> list[tuple[str, str, str]]:
    return [(step.layer, step.key, step.outcome) for step in merged.steps]


def test_steps_say_who_set_what() -> None:
    assert layers(merge("K1")[0]) == [
        ("settings.chat_template_kwargs", "enable_thinking", "set"),
        ("settings.chat_template_kwargs", "x", "set"),
        ("request.chat_template_kwargs", "x", "replaced"),
    ]
    replaced = merge("K1")[0].steps[-1]
    assert (replaced.value, replaced.was) == (2, 1)
    assert layer_of(merge("K1")[0], "x") == "request.chat_template_kwargs"
    assert layer_of(merge("K2")[0], "enable_thinking") == "settings.enable_thinking"
    assert layer_of(merge("K9")[0], "preserve_thinking") == "settings.preserve_thinking"
    assert layer_of(merge("K8")[0], "preserve_thinking") == "detected_default"
    assert layer_of(merge("K6")[0], "enable_thinking") == "thinking_budget"
    assert layer_of(merge("K4")[0], "x") is None


def test_forced_keys_are_dropped_even_without_a_value_of_their_own() -> None:
    assert merge("K3")[0].dropped == merge("K4")[0].dropped == ("x",)
    dropped = [step for step in merge("K4")[0].steps if step.outcome == "dropped"]
    assert [(step.value, step.was) for step in dropped] == [(2, None)]


def test_a_skipped_default_says_why() -> None:
    assert layers(merge("K7")[0])[1:] == [
        ("thinking_budget", "enable_thinking", "skipped"),
        ("detected_default", "preserve_thinking", "skipped"),
    ]
    assert merge("K7")[0].steps[-1].why == "thinking is off"
    assert merge("K10")[0].steps[-1].why == "the key has a value"


def test_only_false_itself_switches_the_default_off() -> None:
    for value in (None, 0, "", "false"):
        merged = merge_kwargs(ModelSettings(), {"enable_thinking": value}, preserve_thinking_default=True)
        assert merged.kwargs["preserve_thinking"] is True


def test_nothing_detected_sets_nothing() -> None:
    for detected in (None, False):
        assert merge_kwargs(ModelSettings(), preserve_thinking_default=detected).kwargs == {}


def test_effort_fills_a_gap_of_the_request_only() -> None:
    settings = ModelSettings(chat_template_kwargs={"reasoning_effort": "high"})
    merged = merge_kwargs(settings, {}, reasoning_effort="low")
    assert merged.kwargs == {"reasoning_effort": "low"}
    assert layer_of(merged, "reasoning_effort") == "request.reasoning_effort"
    merged = merge_kwargs(settings, {"reasoning_effort": "medium"}, reasoning_effort="low")
    assert merged.kwargs == {"reasoning_effort": "medium"}
    assert ("request.reasoning_effort", "reasoning_effort", "skipped") in layers(merged)
    forced = ModelSettings(forced_ct_kwargs=("reasoning_effort",))
    assert merge_kwargs(forced, {}, reasoning_effort="low").dropped == ("reasoning_effort",)


def test_the_requests_budget_comes_before_the_models() -> None:
    settings = ModelSettings(thinking_budget_enabled=True, thinking_budget_tokens=100)
    merged = merge_kwargs(settings, thinking_budget=7)
    assert merged.steps[-1].why == "the request has a budget of 7 tokens"
    assert merge_kwargs(settings).steps[-1].why == "the model has a budget of 100 tokens"
    assert merge_kwargs(ModelSettings(thinking_budget_tokens=100)).kwargs == {}


NAMES = st.sampled_from(["enable_thinking", "preserve_thinking", "reasoning_effort", "x"])
KWARGS = st.dictionaries(NAMES, st.sampled_from([True, False, None, "low", 1]))
SWITCH = st.sampled_from([None, True, False])


@given(
    st.builds(
        ModelSettings,
        chat_template_kwargs=KWARGS,
        enable_thinking=SWITCH,
        preserve_thinking=SWITCH,
        forced_ct_kwargs=st.lists(NAMES).map(tuple),
        thinking_budget_enabled=SWITCH,
        thinking_budget_tokens=st.sampled_from([None, 0, 100]),
    ),
    KWARGS,
    st.sampled_from([None, "low"]),
    st.sampled_from([None, 512]),
    SWITCH,
)
def test_the_steps_lead_to_the_result(
    settings: ModelSettings,
    request: dict[str, Any],
    effort: str | None,
    budget: int | None,
    default: bool | None,
) -> None:
    before = (dict(settings.chat_template_kwargs or {}), dict(request))
    merged = merge_kwargs(
        settings, request, reasoning_effort=effort, thinking_budget=budget, preserve_thinking_default=default
    )
    replayed: dict[str, Any] = {}
    for step in merged.steps:
        assert step.was == replayed.get(step.key) or step.outcome in ("skipped", "dropped")
        if step.outcome in ("set", "replaced"):
            assert (step.key in replayed) is (step.outcome == "replaced")
            replayed[step.key] = step.value
    assert replayed == merged.kwargs
    assert before == (settings.chat_template_kwargs, request)
    forced = set(settings.forced_ct_kwargs or ())
    assert all(
        step.key not in forced
        for step in merged.steps
        if step.layer.startswith("request.") and step.outcome == "set"
    )


def requests() -> list[Request]:
    case = json.loads((CASE / "case.json").read_text())
    return [
        Request(
            tuple(Message(message, index) for index, message in enumerate(request["messages"])),
            tools=tuple(request["tools"]),
            kwargs=request["chat_template_kwargs"],
        )
        for request in case["requests"]
    ]


def prompt_of(request: Request) -> MergedPrompt:
    template = load_template(CASE / "template.jinja")
    return merged_prompt(template, request, merge_kwargs(ModelSettings(), request.kwargs))


def test_the_retry_of_case_29() -> None:
    facts = json.loads((CASE / "case.json").read_text())["expect"]["facts"]["retry_without_kwargs_and_tools"]
    earlier, later = requests()
    assert prompt_of(earlier) == MergedPrompt(chars=facts["earlier_chars"])
    found = prompt_of(later)
    assert found.error == "TypeError: macro 'turn' takes no keyword argument 'effort'"
    assert (found.line, found.culprits) == (12, ("reasoning_effort",))
    text, vlm = found.retries
    assert text.dropped == ("preserve_thinking", "reasoning_effort", "tools")
    assert text.chars == facts["later_chars"]
    assert text.shared_chars == facts["shared_chars"]
    assert vlm.dropped == ("preserve_thinking", "reasoning_effort")
    assert vlm.chars == vlm.shared_chars == found.chars_without_culprit
    template = load_template(CASE / "template.jinja")
    before = template.render_request(earlier)
    after = template.render_request(retried(later, "text"))
    assert common_prefix(before, after) == facts["shared_chars"]


def test_other_errors_are_not_retried() -> None:
    template = ChatTemplate({"default": "{{ raise_exception('no') }}"}, source="x")
    found = merged_prompt(template, requests()[0], merge_kwargs(ModelSettings()))
    assert (found.error, found.retries) == ("TemplateError: no", ())


def test_a_retry_that_raises_again() -> None:
    template = ChatTemplate({"default": "{{ 'x' + 1 }}"}, source="x")
    found = merged_prompt(template, requests()[0], merge_kwargs(ModelSettings(), {"a": 1}))
    assert found.culprits == ()
    assert [(retry.chars, retry.shared_chars) for retry in found.retries] == [(None, None)] * 2
    assert all(retry.error and retry.error.startswith("TypeError") for retry in found.retries)
