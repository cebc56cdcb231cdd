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


def test_a_dropped_text_is_missing_also_where_it_stands_twice() -> None:
    source = loop("{% if m.role != 'system' or loop.first %}{{ m.content }};{% endif %}")
    given = (("system", "be brief"), ("user", "hi"), ("system", "be brief"), ("user", "hi"), ("system", "hi"))
    assert rendered(source, "as-is", *given).text_missing_of == (2, 4)


@pytest.mark.parametrize("form", ["upper", "tojson", "replace(' ', '_')"])
def test_a_rewritten_text_is_not_missing(form: str) -> None:
    assert (
        rendered(
            loop(f"{{{{ m.content | {form} }}}}"), "as-is", ("user", 'one "two"'), ("assistant", "x y")
        ).text_missing_of
        == ()
    )


def test_texts_that_the_server_leaves_out_are_missing() -> None:
    counter = "<total_tokens>99 tokens left</total_tokens>"
    row = rendered(PLAIN, "rapid-mlx:route=none", ("user", "hi"), ("system", counter))
    assert row.text_missing_of == (1,)
    assert [turn.outcome for turn in row.system_turns] == ["dropped"]


def test_a_message_without_text_is_not_missing() -> None:
    row = rendered(PLAIN, "hoist", ("system", " "), ("user", "hi"), ("assistant", None), ("system", []))
    assert row.text_missing_of == ()
    assert row.system_turns == ()


def test_only_a_text_without_letters_is_told_by_the_string_alone() -> None:
    source = loop("{{ m.content }}", "if m.role == 'user'")
    assert rendered(source, "as-is", ("user", "hi"), ("system", "…!?")).text_missing_of == (1,)
    assert rendered(source, "as-is", ("user", "…!?"), ("user", "12")).text_missing_of == ()
