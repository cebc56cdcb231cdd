"""The checks beside system turns: clock, string arguments, content lists, and how a directory is loaded."""

from typing import Any

from tplaudit.probes.findings import Finding
from tplaudit.probes.placements.mid_system import Prompts
from tplaudit.probes.placements.template_checks import check_template
from tplaudit.probes.templates.template import ChatTemplate

LOOP = (
    "{% for m in messages %}{{ m.role }}"
    ": {{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}"
)


def found(text: str, kwargs: dict[str, Any] | None = None) -> dict[str, Finding]:
    prompts = Prompts(ChatTemplate({"default": text}, source="t"), kwargs or {})
    return {each.rule: each for each in check_template(prompts)}


def test_a_good_template_has_no_findings() -> None:
    assert found(LOOP) == {}


def test_a_clock_is_found_with_its_line() -> None:
    text = "Head.\n{{ 'Today: ' + strftime_now('%d %B %Y') }}\n" + LOOP
    each = found(text)["template-clock"]
    assert each.line == 2
    offset = len("Head.\nToday: ")
    assert each.message == f"the date or time of the render is at character {offset} of the prompt"
    pinned = (
        "{% if not date_string is defined %}{% set date_string = strftime_now('%d') %}{% endif %}"
        "{{ date_string }}"
    ) + LOOP
    assert "template-clock" in found(pinned)
    assert "template-clock" not in found(pinned, {"date_string": "1 May"})
    assert "template-clock" not in found("{# strftime_now #}" + LOOP)


def test_a_clock_behind_tools_is_found() -> None:
    text = LOOP + "{% if tools %}{{ strftime_now('%H:%M') }}{% endif %}"
    assert found(text)["template-clock"].message.endswith("when tools are given")


def test_string_arguments() -> None:
    calls = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %}{% endfor %}{% endfor %}"
    )
    each = found(LOOP + calls)["string-arguments-raise"]
    assert "UndefinedError" in each.message
    assert each.line == 2
    assert "string-arguments-raise" not in found(
        LOOP + calls.replace(".items()", " | tojson").replace("k, v", "k")
    )
    never = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    assert "string-arguments-raise" not in found(LOOP + never)


def test_content_lists() -> None:
    each = found("{% for m in messages %}\n{{ m.content }}\n{% endfor %}")["parts-list-repr"]
    assert each.line == 2
    assert "system, user, assistant, tool" in each.message
    only = (
        "{% for m in messages %}"
        "{{ m.content if m.role == 'tool' or m.content is string else m.content[0].text }}{% endfor %}"
    )
    assert found(only)["parts-list-repr"].message.endswith("in turns of role tool")
