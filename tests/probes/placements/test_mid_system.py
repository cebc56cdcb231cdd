"""The capability probe on templates whose behaviour is known."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tplaudit.fixtures import template
from tplaudit.probes.errors import RenderError
from tplaudit.probes.placements.mid_system import Prompts, examine, examine_placements
from tplaudit.probes.placements.placements import PLAIN, Case
from tplaudit.probes.templates.template import ChatTemplate

CASES = Path(__file__).parents[2] / "cases"
TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}


def chat_template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test.jinja", special_tokens=TOKENS)


def fixture(name: str) -> str:
    return template(name).read_text(encoding="utf-8")


def verdicts(text: str, **wanted: Any) -> Counter[str]:
    rows = examine_placements(chat_template(text))
    return Counter(
        row.verdict
        for row in rows
        if not row.kwargs and all(getattr(row, name) == value for name, value in wanted.items())
    )


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("strict", "raises"), ("in-place", "in-place"), ("dropping", "dropped"), ("moving", "moved")],
)
def test_a_bundled_template_does_what_its_name_says(name: str, verdict: str) -> None:
    assert set(verdicts(fixture(name), shape="plain")) == {verdict}


def test_every_row_of_a_bundled_template_names_the_right_line() -> None:
    expected = {
        "strict": "raise_exception('A system message is allowed only as the first message.')",
        "in-place": "'<|im_start|>system\\n' + content",
        "dropping": "if message.role in system_roles",
    }
    for name, text in expected.items():
        lines = fixture(name).splitlines()
        rows = [
            row for row in examine_placements(chat_template(fixture(name))) if row.verdict != "not-evaluated"
        ]
        assert {row.line is not None and text in lines[row.line - 1] for row in rows} == {True}, name
    moving = fixture("moving").splitlines()
    rows = examine_placements(chat_template(fixture("moving")))
    assert {"opening" in moving[(row.line or 0) - 1] for row in rows} == {True}


def test_a_raise_is_told_with_its_text() -> None:
    row = next(row for row in examine_placements(chat_template(fixture("strict"))) if row.verdict == "raises")
    assert row.error == "TemplateError: A system message is allowed only as the first message."


def test_an_earlier_run_that_raises_leaves_a_later_one_without_a_verdict() -> None:
    rows = [row for row in examine_placements(chat_template(fixture("strict"))) if row.shape == "two-runs"]
    assert {row.verdict for row in rows} == {"not-evaluated"}
    assert all("A system message is allowed only as the first" in (row.error or "") for row in rows)


def test_a_predecessor_that_is_not_written_leaves_no_verdict() -> None:
    text = "{% for m in messages if m.role != 'tool' %}{{ m.content }}\n{% endfor %}"
    rows = [row for row in examine_placements(chat_template(text)) if row.preceding == "tool"]
    assert {row.verdict for row in rows} == {"not-evaluated"}
    assert {row.error for row in rows} == {"the template does not write the tool turn before it"}


def test_the_case_of_a_leading_developer_message() -> None:
    case = json.loads((CASES / "07-leading-developer-later-system" / "case.json").read_text(encoding="utf-8"))
    facts = case["expect"]["facts"]["probe"]
    text = (CASES / "07-leading-developer-later-system" / "template.jinja").read_text(encoding="utf-8")
    rows = {
        (row.preceding, row.placement, row.leading): row
        for row in examine_placements(chat_template(text))
        if row.role == "system" and row.shape == "plain" and not row.tools
    }
    assert facts["user,system"] == {"in_order": True}
    assert rows["user", "tail", False].verdict == "in-place"
    assert facts["user,system,assistant"] == {"in_order": True}
    assert rows["user", "between", False].verdict == "in-place"
    for fact, place in (
        ("system,user,system", ("user", "tail", True)),
        ("developer,user,assistant,system,user", ("assistant", "before-user", True)),
    ):
        assert rows[place].verdict == "raises"
        assert rows[place].error == facts[fact]["error"]


@pytest.mark.parametrize("number", ["13", "14", "15", "16"])
def test_variables_that_keep_reasoning_do_not_matter_to_system_turns(number: str) -> None:
    folder = next(CASES.glob(f"{number}-*"))
    rows = examine_placements(chat_template((folder / "template.jinja").read_text(encoding="utf-8")))
    assert not [row for row in rows if row.kwargs]


def test_a_kwarg_that_a_macro_does_not_take_raises() -> None:
    folder = next(CASES.glob("29-*"))
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    kwargs = case["requests"][1]["chat_template_kwargs"]
    expected = case["expect"]["policies"]["as-is"]["requests"][1]["error"]
    given = chat_template((folder / "template.jinja").read_text(encoding="utf-8"))
    rows = examine_placements(given, kwargs=kwargs)
    assert all(row.verdict == "not-evaluated" and expected in (row.error or "") for row in rows)
    assert any(row.verdict != "not-evaluated" for row in examine_placements(given))


LOOP = "{% for m in messages %}{{ '<' + m.role + '>' + (m.content or '') + '\n' }}{% endfor %}"


def test_unstable_says_whether_the_successor_alone_does_it() -> None:
    text = LOOP.replace("{% for", "{{ messages | length }}{% for", 1)
    rows = examine_placements(chat_template(text))
    assert {row.verdict for row in rows} == {"unstable"}
    assert {row.successor_moves for row in rows if row.placement == "tail"} == {None}
    assert {row.successor_moves for row in rows if row.placement != "tail"} == {True}
    own = LOOP.replace(
        "{% for",
        "{{ messages | selectattr('role', 'in', ['system', 'developer']) | list | length }}{% for",
        1,
    )
    rows = examine_placements(chat_template(own))
    assert {row.verdict for row in rows} == {"unstable"}
    assert {row.successor_moves for row in rows if row.placement != "tail"} == {False}
    assert {row.line for row in rows} == {1}


def test_a_drop_that_keeps_the_prefix_is_still_a_drop() -> None:
    text = LOOP.replace("in messages", "in messages if m.role not in ['system', 'developer']")
    rows = examine_placements(chat_template(text))
    assert {row.verdict for row in rows} == {"dropped"}
    assert {row.line for row in rows} == {1}


def test_only_verdicts_that_a_switch_changes_are_reported() -> None:
    text = LOOP.replace(
        "{{ '<'",
        "{% if quiet_thinking and m.role == 'system' and not loop.first %}{% continue %}{% endif %}{{ '<'",
    )
    rows = examine_placements(chat_template(text))
    changed = [row for row in rows if row.kwargs]
    assert {json.dumps(row.kwargs) for row in changed} == {'{"quiet_thinking": true}'}
    assert {(row.role, row.verdict) for row in changed} == {("system", "dropped")}
    assert len(changed) == len(PLAIN) // 2
    assert not [
        row for row in examine_placements(chat_template(text), kwargs={"quiet_thinking": True}) if row.kwargs
    ]


def test_levels_of_effort_are_tried() -> None:
    text = LOOP.replace(
        "{{ '<'",
        (
            "{{ raise_exception('no') if reasoning_effort == 'extreme' and m.role == 'system' and not "
            "loop.first }}{{ '<'"
        ),
    )
    changed = [row for row in examine_placements(chat_template(text)) if row.kwargs]
    assert {json.dumps(row.kwargs) for row in changed} == {'{"reasoning_effort": "extreme"}'}
    assert {(row.role, row.verdict) for row in changed} == {("system", "raises")}


def test_a_value_with_which_nothing_renders_is_no_value() -> None:
    text = LOOP.replace(
        "{% for", "{% if thinking_mode is true %}{{ raise_exception('a word, please') }}{% endif %}{% for", 1
    )
    assert not [row for row in examine_placements(chat_template(text)) if row.kwargs]


def test_messages_passed_on_as_given_are_reported_where_they_differ() -> None:
    text = "{% set ns = namespace(_first=true) %}" + LOOP
    rows = examine_placements(chat_template(text))
    assert {row.verdict for row in rows if row.profile == "transformers"} == {"not-evaluated"}
    assert {row.verdict for row in rows if row.profile == "raw"} == {"in-place"}
    assert not [row for row in examine_placements(chat_template(LOOP)) if row.profile == "raw"]


def test_prompts_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[tuple[Any, ...]] = Counter()
    render = ChatTemplate.render_and_locate

    def counted(self: ChatTemplate, request: Any, text: Any, **rest: Any) -> Any:
        names = tuple(message.data["content"] for message in request.messages)
        asked[
            names,
            tuple(message.role for message in request.messages),
            request.tools is None,
            rest["add_generation_prompt"],
            rest["profile"],
        ] += 1
        return render(self, request, text, **rest)

    monkeypatch.setattr(ChatTemplate, "render_and_locate", counted)
    examine_placements(chat_template(fixture("in-place")))
    assert sum(asked.values()) < 140
    usual = [count for (*_, profile), count in asked.items() if profile == "transformers"]
    assert Counter(usual)[1] > len(usual) - 3  # all but those that a switch's values are compared by


@pytest.mark.parametrize("name", ["in-place", "strict", "dropping", "moving"])
def test_changing_what_a_template_does_changes_the_verdict(name: str) -> None:
    """Mutations by machine: the line that decides is deleted, doubled or replaced."""
    source = fixture(name)
    writing = "{{- '<|im_start|>system\\n' + content + '<|im_end|>\\n' -}}"
    if name == "in-place":
        assert source.count(writing) == 1
        mutants = {
            "dropped": source.replace(writing, ""),
            "duplicated": source.replace(writing, writing + writing),
            "raises": source.replace(writing, "{{- raise_exception('no') -}}"),
            "moved": source.replace(writing, "").replace(
                "{%- if add_generation_prompt -%}",
                "{%- for message in messages[1:] if message.role in system_roles -%}"
                f"{writing.replace('content', 'message.content')}"
                "{%- endfor -%}{%- if add_generation_prompt -%}",
            ),
            "unstable": source.replace("{%- for message", "{{- messages|length -}}{%- for message", 1),
        }
    elif name == "strict":
        raising = "{{- raise_exception('A system message is allowed only as the first message.') -}}"
        assert source.count(raising) == 1
        mutants = {"in-place": source.replace(raising, writing), "dropped": source.replace(raising, "")}
    elif name == "dropping":
        comment = "{#- Only the first message's text is written, above. -#}"
        assert source.count(comment) == 1
        mutants = {
            "in-place": source.replace(comment, "{%- if not loop.first -%}" + writing + "{%- endif -%}"),
            "raises": source.replace(comment, "{{- raise_exception('no') if not loop.first -}}"),
        }
    else:
        gathering = "{%- for message in messages if message.role in system_roles -%}"
        assert source.count(gathering) == 1
        mutants = {
            "dropped": source.replace(
                gathering, "{%- for message in messages[:1] if message.role in system_roles -%}"
            )
        }
    for verdict, mutant in mutants.items():
        assert mutant != source
        seen = verdicts(mutant, shape="plain", role="system")
        if verdict == "moved":  # at the end of the conversation the end is the right place
            assert seen == {"moved": 20, "in-place": 10}, seen
        else:
            # What the strict template does to reasoning when a user turn follows is another matter.
            rows = examine_placements(chat_template(mutant))
            others = {
                row.verdict
                for row in rows
                if row.role == "system" and row.shape == "plain" and not row.successor_moves
            }
            assert others == {verdict}, (name, verdict, seen)


def test_a_prompt_that_is_too_long_is_not_evaluated() -> None:
    text = LOOP + (
        "{% if messages | selectattr('role', 'equalto', 'system') | list | length > 1 %}"
        "{% for i in range(9) %}{{ '0' * 1000 }}{% endfor %}{% endif %}"
    )
    from tplaudit.probes.templates.rendering import Limits

    given = ChatTemplate({"default": text}, source="t", special_tokens=TOKENS, limits=Limits(characters=5000))
    report = examine(Prompts(given), Case("user", "tail", True, "system", False))
    assert (report.verdict, report.error) == (
        "not-evaluated",
        "not evaluated, too long: the template wrote more than 5,000 characters",
    )


def test_a_template_that_is_not_jinja_is_an_error() -> None:
    with pytest.raises(RenderError, match="TemplateSyntaxError"):
        examine_placements(chat_template("{% for %}"))
