from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.attribution.rendered import Rendered, render_turn
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.grouping.conversations import Continuation

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def loop(body: str, which: str = "") -> str:
    return f"{{% for m in messages {which} %}}{body}{{% endfor %}}"


def messages(*given: tuple[str, Any]) -> tuple[Message, ...]:
    return tuple(Message({"role": role, "content": content}, n) for n, (role, content) in enumerate(given))


def rendered(source: str, policy: str, *given: tuple[str, Any], **fields: Any) -> Rendered:
    template = ChatTemplate({"default": source}, source="test")
    request = Request(messages(*given), **fields)
    return render_turn(
        Continuation(1, 1, None, "begins"), request, template, [parse_policy(policy)]
    ).policies[0]


@pytest.mark.parametrize(
    ("policy", "given", "outcomes"),
    [
        ("as-is", ("s", "u", "s", "d"), {0: "kept", 2: "kept", 3: "kept"}),
        ("hoist", ("s", "u", "s", "d"), {0: "kept", 2: "hoisted", 3: "hoisted"}),
        ("hoist", ("u", "s"), {1: "hoisted"}),
        ("note", ("s", "u", "s", "a", "u"), {0: "kept", 2: "noted"}),
        ("rapid-mlx:route=none,relocate=on", ("u", "a", "s", "u"), {2: "relocated"}),
        ("mtplx:version=2.12", ("u", "a", "s", "u"), {2: "noted"}),
        ("mlx-vlm:route=responses", ("s", "u", "s", "a"), {0: "kept", 2: "hoisted"}),
    ],
)
def test_fates(policy: str, given: tuple[str, ...], outcomes: dict[int, str]) -> None:
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    row = rendered(PLAIN, policy, *((roles[letter], f"text {n}") for n, letter in enumerate(given)))
    assert {turn.message: turn.outcome for turn in row.system_turns} == outcomes
    assert row.text_missing_of == ()


def test_a_template_without_a_system_role_gets_the_text_elsewhere() -> None:
    source = loop("{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}")
    row = rendered(source, "llama-cpp", ("system", "be brief"), ("user", "hi"))
    assert [(turn.outcome, turn.leading) for turn in row.system_turns] == [("relocated", True)]


def test_what_the_template_does_to_a_turn_that_the_server_keeps() -> None:
    moving = "".join(loop("{{ m.content }}", f"if m.role {sign} 'system'") for sign in ("==", "!="))
    given = (("system", "first"), ("user", "hi"), ("system", "later"))
    assert [turn.outcome for turn in rendered(moving, "as-is", *given).system_turns] == ["kept", "moved"]
    losing = "{{ messages[0].content }}{{ messages[1].content }}"
    assert [turn.outcome for turn in rendered(losing, "as-is", *given).system_turns] == ["kept", "lost"]


def test_a_top_level_system_text_is_a_leading_turn() -> None:
    given = (("user", [{"type": "text", "text": "hi"}]),)
    row = rendered(PLAIN, "mtplx", *given, dialect="anthropic-messages", system="be brief")
    assert [(turn.message, turn.outcome, turn.leading) for turn in row.system_turns] == [(-1, "kept", True)]
