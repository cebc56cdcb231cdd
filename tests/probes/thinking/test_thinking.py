"""What a template does with reasoning, on small templates that each do one thing."""

import json
from pathlib import Path

import pytest
from reasoning_templates import LAST_USER, examine, template
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.thinking.thinking import ThinkingReport, VariableReport, examine_thinking

CASES = Path(__file__).parents[2] / "cases"


def variable(report: ThinkingReport, name: str) -> VariableReport:
    return next(each for each in report.variables if each.name == name)


def test_a_template_that_raises_is_not_evaluated_and_says_why() -> None:
    report = examine("raise_exception('no reasoning here')")
    assert report.history == "not-evaluated"
    assert report.not_evaluated["history"] == (
        "every conversation: the template raises TemplateError: no reasoning here"
    )
    assert report.fields["inline"] == "keeps"


def test_a_template_without_assistant_turns_is_not_evaluated() -> None:
    text = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    report = examine_thinking(ChatTemplate({"default": text}, source="x"))
    assert report.history == "not-evaluated"
    assert "does not write assistant turns" in report.not_evaluated["history"]


def test_broken_jinja_is_reported_not_raised() -> None:
    report = examine_thinking(ChatTemplate({"default": "{% for m in messages %}{{ thinking"}, source="x"))
    assert report.history == "not-evaluated"
    assert report.generation_prompt.text is report.generation_prompt.persists is None


def test_a_tool_loop_that_takes_string_arguments_only_is_evaluated() -> None:
    text = template("loop.index0 > ns.last").text.replace(
        "(c.function.arguments | tojson)", "''+c.function.arguments"
    )
    text = text.replace("c.function.name ~", "c.function.name +")
    report = examine_thinking(ChatTemplate({"default": text}, source="x"))
    assert report.history == "tool-loop-only"
    assert "history" not in report.not_evaluated


def test_an_unknown_tool_role_leaves_the_answer_to_decide() -> None:
    raises = "{% for m in messages if m.role == 'tool' %}{{ raise_exception('roles') }}{% endfor %}"
    report = examine("loop.index0 > ns.last", head=raises)
    assert report.history == "drops"
    assert report.places.call.recent is None
    assert "TemplateError: roles" in report.not_evaluated["history"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("preserve_thinking is true or loop.index0 > ns.last", ("keeps", "tool-loop-only", True)),
        ("clear_thinking is false or loop.index0 > ns.last", ("tool-loop-only", "keeps", False)),
        ("drop_thinking is false or loop.index0 > ns.last", ("tool-loop-only", "keeps", False)),
        ("truncate_history_thinking is false or loop.index0 > ns.last", ("tool-loop-only", "keeps", False)),
        ("keep_past_thinking or loop.index0 > ns.last", ("keeps", "tool-loop-only", True)),
        ("preserved_thinking or loop.index0 > ns.last", ("keeps", "tool-loop-only", True)),
        ("retain_cots or loop.index0 > ns.last", ("keeps", "tool-loop-only", True)),
    ],
)
def test_a_knob(condition: str, expected: tuple[str, str, bool]) -> None:
    name = condition.split()[0]
    report = examine(condition, head="{#- thinking -#}")
    found = variable(report, name)
    assert (found.true, found.false, found.keeps_with) == expected
    assert found.unset == report.history == "tool-loop-only"
    assert found.effect
    assert found.changes == {"true": expected[2], "false": not expected[2]}
    assert report.knob is not None
    assert (report.knob.name, report.knob.value) == (name, expected[2])
    assert found.known is (name != "retain_cots")
    assert report.mentions == (() if name == "retain_cots" else (name,))


def test_a_knob_whose_value_is_a_text() -> None:
    report = examine("render_thinking == 'all' or loop.index0 > ns.last")
    found = variable(report, "render_thinking")
    assert found.texts == {"all": "keeps"}
    assert found.keeps_with == "all"
    assert found.changes == {"true": False, "false": False, "all": True}


def test_a_mention_in_a_comment_has_no_effect() -> None:
    report = examine("loop.index0 > ns.last", head="{#- preserve_thinking -#}")
    found = variable(report, "preserve_thinking")
    assert report.mentions == ("preserve_thinking",)
    assert report.omlx_default is True
    assert not found.effect
    assert found.changes == {"true": False, "false": False}
    assert found.unset == found.true == found.false == "tool-loop-only"
    assert found.keeps_with is report.knob is None


def test_a_mention_that_is_overwritten_has_no_effect() -> None:
    report = examine("preserve_thinking or loop.index0 > ns.last", head="{% set preserve_thinking = false %}")
    assert not variable(report, "preserve_thinking").effect


def test_a_variable_that_needs_another_one() -> None:
    report = examine("enable_thinking is false and preserve_thinking or loop.index0 > ns.last")
    found = variable(report, "preserve_thinking")
    assert not found.effect
    assert found.only_with == {"enable_thinking": False}


def test_a_variable_whose_other_value_would_keep_is_pinned() -> None:
    report = examine("clear_thinking is not true or loop.index0 > ns.last")
    assert report.history == "keeps"
    assert report.knob is not None
    assert (report.knob.name, report.knob.value) == ("clear_thinking", False)


def test_a_variable_that_keeps_calls_only() -> None:
    report = examine("loop.index0 > ns.last or (preserve_thinking and m.tool_calls)")
    found = variable(report, "preserve_thinking")
    assert found.effect
    assert found.true == "tool-loop-only"
    assert found.keeps_with is None
    assert found.keeps_calls_with is True
    assert report.knob is None


def test_a_variable_that_acts_on_reasoning_within_the_content_only() -> None:
    text = (
        f"{LAST_USER}{{% for m in messages %}}{{% if m.role == 'assistant' and not keep_past_thinking "
        "and loop.index0 < ns.last %}{{ m.content.split('</think>')[-1] }}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    report = examine_thinking(ChatTemplate({"default": text}, source="x"))
    found = variable(report, "keep_past_thinking")
    assert report.history == "never"
    assert found.form == "inline"
    assert (found.unset, found.true, found.keeps_with) == ("tool-loop-only", "keeps", True)


def test_a_kwarg_that_raises_is_not_fine() -> None:
    report = examine("preserve_thinking + 'x' or true", head="")
    found = variable(report, "preserve_thinking")
    assert found.true == found.false == "not-evaluated"
    assert found.reason is not None
    assert "true: every conversation: the template raises TypeError" in found.reason


def test_variables_that_change_nothing_kept_are_not_listed() -> None:
    head = "{{ 'thinking ' ~ enable_thinking ~ date_string ~ m }}"
    assert examine("true", head=head).variables == ()


def test_the_six_names_are_whole_words() -> None:
    report = examine("true", head="{#- preserve_thinking_mode -#}")
    assert report.mentions == ()
    assert report.omlx_default is True  # a substring test does not know words


def test_kwargs_count_for_the_verdict_as_given_only() -> None:
    one = template("preserve_thinking or loop.index0 > ns.last")
    report = examine_thinking(one, kwargs={"preserve_thinking": True})
    assert report.history == "tool-loop-only"
    assert report.as_given == "keeps"
    assert variable(report, "preserve_thinking").unset == "tool-loop-only"


def test_other_kwargs_count_everywhere_but_for_their_own_row() -> None:
    one = template("keep_my_thinking or loop.index0 > ns.last")
    report = examine_thinking(one, kwargs={"keep_my_thinking": True})
    assert report.history == report.as_given == "keeps"
    assert variable(report, "keep_my_thinking").unset == "tool-loop-only"


def test_tools_are_given_with_every_conversation_where_asked() -> None:
    one = template("tools or loop.index0 > ns.last")
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    assert examine_thinking(one).history == "tool-loop-only"
    assert examine_thinking(one, tools=[tool]).history == "keeps"


def test_named_templates_are_looked_at_together() -> None:
    keeps, strips = template("true").text, template("clear_thinking is false").text
    report = examine_thinking(ChatTemplate({"default": keeps, "tool_use": strips}, source="x"))
    assert report.mentions == ("clear_thinking",)
    assert report.places.answer.later is True
    assert report.places.call.recent is False


@pytest.mark.parametrize(
    ("condition", "sets", "history", "differs"),
    [
        ("preserve_thinking or loop.index0 > ns.last", {"preserve_thinking": True}, "keeps", True),
        ("clear_thinking is false or loop.index0 > ns.last", {"clear_thinking": False}, "keeps", True),
        ("keep_past_thinking or loop.index0 > ns.last", {}, "tool-loop-only", False),
        ("drop_thinking is not true", {"drop_thinking": False}, "keeps", False),
    ],
)
def test_llama_cpps_defaults(condition: str, sets: dict[str, bool], history: str, differs: bool) -> None:
    found = examine(condition).llama_cpp
    assert (found.sets, found.history, found.differs) == (sets, history, differs)


def test_omlx_hands_over_natively_where_it_detects_the_name() -> None:
    found = examine("preserve_thinking or loop.index0 > ns.last").omlx
    assert found.sets == {"preserve_thinking": True}
    assert found.native_reasoning
    assert found.output_cacheable
    assert found.history == "keeps"


def test_omlx_writes_think_tags_where_it_does_not() -> None:
    found = examine("clear_thinking is false or loop.index0 > ns.last").omlx
    assert found.sets == {}
    assert not found.native_reasoning
    assert not found.output_cacheable
    assert found.history == "keeps"  # the content stays as it is


def test_omlx_does_not_set_it_where_thinking_is_off_or_it_is_set() -> None:
    one = template("preserve_thinking or loop.index0 > ns.last")
    assert examine_thinking(one, kwargs={"enable_thinking": False}).omlx.sets == {}
    off = examine_thinking(one, kwargs={"preserve_thinking": False}).omlx
    assert (off.sets, off.output_cacheable, off.history) == ({}, False, "tool-loop-only")


@pytest.mark.parametrize(
    "name",
    [
        "13-preserve-thinking-toggled",
        "14-comment-only-preserve-thinking",
        "15-clear-thinking-key",
        "16-drop-thinking-key",
    ],
)
def test_facts_of_the_cases(name: str) -> None:
    case = json.loads((CASES / name / "case.json").read_text())
    first = case["requests"][0]
    report = examine_thinking(
        load_template(CASES / name / "template.jinja"),
        kwargs=first.get("chat_template_kwargs"),
        tools=first.get("tools"),
    )
    known = {each.name: each for each in report.variables}
    for variable_name, changes in case["expect"]["facts"]["kwarg_changes_prompt"].items():
        found = known[variable_name].changes if variable_name in known else {"true": False, "false": False}
        assert found == changes
        assert any(changes.values()) is (variable_name in known and known[variable_name].effect)
    assert report.history == "tool-loop-only"
    keeps = {
        "13-preserve-thinking-toggled": ("preserve_thinking", True),
        "15-clear-thinking-key": ("clear_thinking", False),
        "16-drop-thinking-key": ("drop_thinking", False),
    }.get(name)
    assert (None if report.knob is None else (report.knob.name, report.knob.value)) == keeps
    for variant in case["expect"]["facts"].get("variants", {}).values():
        assert dict([keeps]) == variant["kwargs"]


def test_the_mention_with_the_knob_is_the_variant_that_keeps_the_prefix() -> None:
    """With the knob of case 15 every body is a prefix of the next prompt, as the case says of the variant."""
    folder = CASES / "15-clear-thinking-key"
    case = json.loads((folder / "case.json").read_text())
    one = load_template(folder / "template.jinja")
    knob = examine_thinking(one).knob
    assert knob is not None
    requests = [
        Request(
            tuple(Message(message, index) for index, message in enumerate(request["messages"])),
            kwargs={knob.name: knob.value},
        )
        for request in case["requests"]
    ]
    bodies = [one.render_request(request, add_generation_prompt=False) for request in requests]
    prompts = [one.render_request(request) for request in requests]
    assert all(prompt.startswith(body) for body, prompt in zip(bodies, prompts[1:], strict=False))
