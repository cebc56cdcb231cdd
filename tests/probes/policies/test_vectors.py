"""What oMLX does to whole conversations: inputs and outputs seen at the server or read from its code."""

import itertools
from typing import Any

import pytest
from chat_messages import BOUNDARY, CALLS, A, S, T, U, data, request_of, vectors_of
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.omlx import Omlx
from tplaudit.probes.text import common_prefix

BEHAVIOURS = {"all": "in place", "none": "raises", "user_only": "user only"}


def prepared(
    template: Any,
    messages: list[dict[str, Any]],
    *,
    partial: bool = False,
    strict: bool = False,
    merge: bool = True,
) -> list[dict[str, Any]]:
    request = request_of(messages, partial=partial)
    return data(Omlx("omlx", strict=strict, merge=merge).prepare(request, template))


@pytest.mark.parametrize("vector", vectors_of("omlx/"), ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any], fake_template: Any) -> None:
    template = fake_template(BEHAVIOURS[vector["probe"]])
    after = prepared(
        template,
        vector["messages"],
        partial=vector["partial"],
        strict=vector["policy"] == "omlx/strict",
        merge=vector["merge_consecutive_roles"],
    )
    assert after == vector["expected"]
    if not vector["partial"]:
        assert bool(template.calls) == bool(vector["placements"]), "probed exactly the supported placements"


MORE: dict[str, tuple[str, dict[str, bool], list[dict[str, Any]], list[dict[str, Any]]]] = {
    "P4": (
        "user only",
        {},
        [U("u1"), S("n1"), A("a", **CALLS), T("r"), S("n2")],
        [S("n1\n\nn2"), U("u1"), A("a", **CALLS), T("r")],
    ),
    "N8": (
        "raises",
        {},
        [S("base"), U("u1"), S("ok-note"), A("", **CALLS), T("r1"), S("bad")],
        [S("base\n\nok-note\n\nbad"), U("u1"), A("", **CALLS), T("r1")],
    ),
    "N14": (
        "raises",
        {},
        [U("[Tool Result (c1)]: r", **BOUNDARY), S("n"), A("a")],
        [S("n"), U("[Tool Result (c1)]: r", **BOUNDARY), A("a")],
    ),
    "N21": ("raises", {}, [U("u1"), A("a1"), S("n"), A("a2")], [S("n"), U("u1"), A("a1\n\na2")]),
    "X3": (
        "in place",
        {"partial": True},
        [U("u1"), A("", **CALLS), T("r"), S("n"), A("partial")],
        [S("n"), U("u1"), A("", **CALLS), T("r"), A("partial")],
    ),
    "S6": (
        "raises",
        {"strict": True},
        [U("u1"), S("n"), U("[Tool Result (c1)]: r", **BOUNDARY)],
        [S("n"), U("u1"), U("[Tool Result (c1)]: r", **BOUNDARY)],
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_further_vector(name: str, fake_template: Any) -> None:
    behaviour, settings, before, after = MORE[name]
    assert prepared(fake_template(behaviour), before, **settings) == after


SCENARIOS: dict[str, list[list[dict[str, Any]]]] = {
    "A": [
        [U("u1"), S("n1")],
        [U("u1"), S("n1"), A("a1"), U("u2"), S("n2")],
        [U("u1"), S("n1"), A("a1"), U("u2"), S("n2"), A("a2"), U("u3"), S("n3")],
    ],
    "B": [
        [U("u1"), S("n1")],
        [U("u1"), S("n1"), A("", **CALLS), T("r1"), S("n2")],
        [U("u1"), S("n1"), A("", **CALLS), T("r1"), S("n2"), A("", **CALLS), T("r2"), S("n3")],
    ],
    "C": [[U("u1"), S("n1")], [U("u1"), S("n1"), U("u2")]],
    "D": [[U("u1"), A("a1"), S("n1")], [U("u1"), A("a1"), S("n1"), U("u2")]],
    "E": [[U("u1"), A("", **CALLS), T("r1"), S("n1")], [U("u1"), A("", **CALLS), T("r1"), S("n1"), U("u2")]],
    "F": [
        [U("u1"), S("n1"), A("a1"), U("u2")],
        [U("u1"), S("n1"), A("a1"), U("u2"), A("", **CALLS), T("r1"), S("n2")],
    ],
}
DRIFT = {
    "A": ("73/73 134/134", "86/86 160/160", "18/57 22/102", "86/86 160/160", "73/73 134/134"),
    "B": ("73/73 140/140", "14/86 22/108", "18/57 22/108", "86/86 166/166", "73/73 140/140"),
    "C": ("32/73", "65/86", "36/57", "32/86", "62/73"),
    "D": ("14/80", "14/80", "69/80", "14/80", "85/96"),
    "E": ("89/120", "14/104", "93/104", "79/133", "109/120"),
    "F": ("114/114", "14/127", "18/98", "127/127", "114/114"),
}


def noted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What flyto-mlx's note function makes of the messages, whatever the template."""
    template: Any = None
    return data(parse_policy("flyto-mlx:route=none").prepare(request_of(messages), template))


def toy_render(messages: list[dict[str, Any]]) -> str:
    def call(message: dict[str, Any]) -> str:
        return "<call:f>" if "tool_calls" in message else ""

    turns = (f"<|{each['role']}|>{each['content']}{call(each)}<|end|>\n" for each in messages)
    return "".join(turns) + "<|assistant|>"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_drift_between_requests(scenario: str, fake_template: Any) -> None:
    requests = [[S("BASE"), *messages] for messages in SCENARIOS[scenario]]
    columns = (
        [prepared(fake_template("in place"), messages) for messages in requests],
        [prepared(fake_template("raises"), messages) for messages in requests],
        [prepared(fake_template("raises"), messages, strict=True) for messages in requests],
        [noted(messages) for messages in requests],
        requests,
    )
    for column, expected in zip(columns, DRIFT[scenario], strict=True):
        prompts = [toy_render(messages) for messages in column]
        shared = [common_prefix(one, two) for one, two in itertools.pairwise(prompts)]
        counts = " ".join(f"{n}/{len(prompt)}" for n, prompt in zip(shared, prompts, strict=False))
        assert counts == expected
