import pytest
from reasoning_templates import examine, template
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.thinking.history import HistoryProbe
from tplaudit.probes.thinking.thinking import examine_thinking


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [
        ("true", "keeps"),
        ("m.tool_calls", "keeps"),
        ("not m.tool_calls", "keeps"),
        ("loop.index0 > ns.last", "tool-loop-only"),
        ("loop.index0 > ns.last and m.tool_calls", "tool-loop-only"),
        ("tools or loop.index0 > ns.last", "tool-loop-only"),
        ("loop.last", "drops"),
        ("loop.index0 > ns.last and not m.tool_calls", "drops"),
        ("false", "never"),
    ],
)
def test_verdicts(condition: str, verdict: str) -> None:
    assert examine(condition).history == verdict


def test_only_the_latest_of_several_answers_is_not_kept() -> None:
    latest = "loop.revindex0 <= 1"  # of the plain chat with two answers only the second
    report = examine(latest)
    assert report.places.answer.recent is True
    assert report.places.answer.later is False
    assert report.history != "keeps"


def test_ways_to_give_reasoning() -> None:
    report = examine("true", value="m.thinking")
    assert report.history == "keeps"
    assert report.fields == {
        "reasoning": "keeps",
        "thinking": "keeps",
        "content-part": "keeps",
        "inline": "keeps",
    }
    assert report.parts_printed  # the marker is there, within a list's notation
    assert report.raw == {"reasoning_content": "never", "reasoning": "never", "thinking": "keeps"}


def test_a_content_part_of_type_thinking() -> None:
    part = "{% for p in m.content %}{{ p.text or p.thinking }}{% endfor %}"
    text = template("false").text.replace(
        "{{ m.content }}", "{% if m.content is string %}{{ m.content }}{% else %}" + part + "{% endif %}"
    )
    report = examine_thinking(ChatTemplate({"default": text}, source="x"))
    assert report.fields["content-part"] == "keeps"
    assert not report.parts_printed
    assert report.history == "never"


def test_aliased_ways_are_what_rendering_them_gives() -> None:
    for condition in ("true", "loop.index0 > ns.last", "m.thinking and loop.last"):
        one = template(condition)
        assert HistoryProbe(one)("thinking") == HistoryProbe(one)("reasoning_content")
