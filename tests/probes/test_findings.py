"""Rules, findings and the ignore file."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from tplaudit.fixtures import template
from tplaudit.probes.errors import InputError
from tplaudit.probes.findings import (
    RULES,
    SEVERITIES,
    Finding,
    Ignore,
    apply_ignores,
    documentation,
    finding,
    in_order,
    reaches,
    read_ignore_file,
)
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.placements.findings import placement_findings, server_findings
from tplaudit.probes.placements.placements import PLAIN
from tplaudit.probes.placements.report import (
    ProbeReport,
    probe,
    several_to_json,
    show_placement,
    to_json,
)
from tplaudit.probes.templates.template import ChatTemplate

DOCS = Path(__file__).parents[2] / "docs" / "findings.md"


def test_every_rule_is_documented_and_nothing_else() -> None:
    headings = re.findall(r"^## (.+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Ignore files"
    assert headings[1:] == list(RULES)
    for rule in RULES:
        section = documentation(rule)
        assert section.startswith(f"# {rule}\n")
        assert "**Why it matters.**" in section
        assert "**What helps.**" in section or "**After**" in section
        assert "\n## " not in section
    assert all(rule.severity in SEVERITIES for rule in RULES.values())
    assert all(not text.endswith(".") for rule in RULES.values() for text in (rule.title, rule.help))


def test_findings_take_after_their_rule() -> None:
    made = finding("system-raises", "it raises", line=3, placements=2)
    assert made == Finding(
        "system-raises", "error", "confirmed", "it raises", 3, 2, RULES["system-raises"].help
    )
    assert finding("system-raises", "x", severity="note", help="wait").severity == "note"


def test_the_worst_comes_first() -> None:
    rules = ["system-unstable", "system-dropped", "generation-prompt-not-in-history", "system-raises"]
    ordered = [each.rule for each in in_order(finding(rule, "x") for rule in rules)]
    assert ordered == [
        "system-raises",
        "system-dropped",
        "system-unstable",
        "generation-prompt-not-in-history",
    ]


def test_thresholds() -> None:
    warning = [finding("system-unstable", "x")]
    assert not reaches(warning, "error")
    assert reaches(warning, "warning")
    assert reaches(warning, "note")
    assert not reaches(warning, "never")
    assert not reaches([], "note")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ignore.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_ignore_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[[ignore]]\nrule = "system-raises"\nreason = "hoisted"\nsource = "a/*.jinja"\n'
        '[[ignore]]\nrule = "template-clock"\nreason = "pinned"\n',
    )
    entries = read_ignore_file(path)
    assert entries == (Ignore("system-raises", "hoisted", "a/*.jinja"), Ignore("template-clock", "pinned"))
    found = [finding("system-raises", "x"), finding("system-dropped", "x"), finding("template-clock", "x")]
    kept, accepted = apply_ignores(found, entries, "a/b.jinja")
    assert [each.rule for each in kept] == ["system-dropped"]
    assert [(each.finding.rule, each.reason) for each in accepted] == [
        ("system-raises", "hoisted"),
        ("template-clock", "pinned"),
    ]
    kept, _ = apply_ignores(found, entries, "b.jinja")
    assert [each.rule for each in kept] == ["system-raises", "system-dropped"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[ignore]]\nrule = "system-raises"\n', "no reason is given"),
        ('[[ignore]]\nrule = "system-raises"\nreason = "  "\n', "no reason is given"),
        ('[[ignore]]\nrule = "no-such"\nreason = "x"\n', "there is no rule 'no-such'"),
        ('[[ignore]]\nrule = "system-raises"\nreason = "x"\nwhen = "y"\n', "unknown key 'when'"),
        ('[[ignore]]\nrule = 3\nreason = "x"\n', "not a table of texts"),
        ("ignore = 3\n", "something else"),
        ("other = 3\n", "something else"),
        ("[[ignore\n", "not a TOML file"),
    ],
)
def test_a_bad_ignore_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_ignore_file(write(tmp_path, text))
    assert "ignore.toml" in str(caught.value)


def test_a_missing_ignore_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_ignore_file(tmp_path / "none.toml")


def report_on(text: str) -> ProbeReport:
    return probe(
        ChatTemplate(
            {"default": text}, source="t", special_tokens={"bos_token": "<bos>", "eos_token": "<eos>"}
        )
    )


def by_rule(report: ProbeReport) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for each in report.findings:
        found.setdefault(each.rule, []).append(each)
    return found


def test_findings_of_the_bundled_templates() -> None:
    rules = {
        name: by_rule(probe(load_template(template(name))))
        for name in ("strict", "in-place", "dropping", "moving")
    }
    assert rules["in-place"] == {}
    assert set(rules["strict"]) == {"system-raises", "generation-prompt-not-in-history"}
    assert set(rules["dropping"]) == {"system-dropped", "probe-false-positive"}
    assert set(rules["moving"]) == {"system-moved", "probe-false-positive"}
    assert rules["strict"]["system-raises"][0].severity == "error"
    assert [each.severity for each in rules["dropping"]["probe-false-positive"]] == ["error"]
    assert [each.severity for each in rules["moving"]["probe-false-positive"]] == ["warning", "warning"]
    assert "everywhere" in rules["dropping"]["system-dropped"][0].message
    assert rules["moving"]["system-moved"][0].placements == 30 + 8


TURN = "{{ '<' + m.role + '>' + (m.content or '') }}"
LOOP = "{% for m in messages %}" + TURN + "{% endfor %}"


def skipping(condition: str) -> str:
    return LOOP.replace(TURN, f"{{% if not ({condition}) %}}{TURN}{{% endif %}}")


def test_the_tool_boundary() -> None:
    found = by_rule(
        report_on(
            skipping("m.role == 'system' and loop.previtem is defined and loop.previtem.role == 'tool'")
        )
    )
    assert "leaves it out" in found["tool-boundary-only"][0].message
    assert found["tool-boundary-only"][0].placements == 6
    assert "after a tool result" in found["system-dropped"][0].message
    assert "tool-boundary-only" not in by_rule(report_on(skipping("m.role == 'system' and not loop.first")))


def test_the_developer_role() -> None:
    found = by_rule(report_on(skipping("m.role == 'developer'")))
    assert set(found) == {"developer-role"}
    assert found["developer-role"][0].placements == 30
    assert found["developer-role"][0].severity == "warning"


def test_a_duplicate() -> None:
    found = by_rule(
        report_on(
            LOOP.replace(
                "(m.content or '')", "(m.content or '') * (2 if m.role == 'system' and not loop.first else 1)"
            )
        )
    )
    assert set(found) == {"system-duplicated", "probe-false-positive"}
    assert all("writes it more than once" in each.message for each in found["probe-false-positive"])


def test_what_the_successor_alone_does_is_only_noted() -> None:
    counting = "{{ messages | rejectattr('role', 'in', ['system', 'developer']) | list | length }}"
    found = by_rule(report_on(counting + LOOP))
    assert found["system-unstable"][0].severity == "note"
    assert "even without the system turn" in found["system-unstable"][0].message


def test_what_could_not_be_judged_is_noted() -> None:
    found = by_rule(report_on(skipping("m.role == 'tool'")))
    assert found["system-not-evaluated"][0].severity == "note"
    assert "does not write the tool turn" in found["system-not-evaluated"][0].message


def test_a_switch_is_named() -> None:
    found = by_rule(report_on(skipping("m.role == 'system' and no_thinking")))
    assert [each.message for each in found["system-dropped"]] == [
        "a later system turn is left out everywhere with no_thinking=true"
    ]


def test_a_refused_call_id() -> None:
    ids = (
        "{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}"
        "{% endif %}{% endfor %}"
    )
    found = by_rule(report_on(LOOP.replace(TURN, ids + TURN)))
    assert set(found) == {"call-id-rejected"}
    assert "omlx_mid_system_probe_call" in found["call-id-rejected"][0].message


def test_a_false_negative() -> None:
    class Declaring(ChatTemplate):
        supports_mid_system_messages = False

    report = probe(Declaring({"default": LOOP}, source="t"))
    assert {each.rule for each in report.findings} == {"probe-false-negative"}


def test_findings_say_nothing_about_a_good_template() -> None:
    report = report_on(LOOP)
    assert (
        list(placement_findings(report.placements))
        == list(server_findings(report.servers, report.placements))
        == []
    )


def test_json_has_the_fields_of_the_report() -> None:
    report = probe(load_template(template("strict")), kwargs={"enable_thinking": False})
    value = to_json(report)
    assert msgspec.convert(value, ProbeReport) == report
    assert value["schema"] == "tplaudit.probe/1"
    assert value["kwargs"] == {"enable_thinking": False}
    assert value["template"].keys() == {"source", "sha256"}
    row = {
        "preceding",
        "placement",
        "leading",
        "role",
        "tools",
        "shape",
        "kwargs",
        "verdict",
        "successor_moves",
        "error",
        "line",
    }
    assert all(row <= each.keys() for each in value["placements"])
    assert all({"name", "supported", "decides", "why"} <= each.keys() for each in value["servers"])
    named = {"rule", "severity", "confidence", "message", "line", "placements", "help"}
    assert all(named <= each.keys() for each in value["findings"])
    assert {
        "mentions",
        "omlx_default",
        "variables",
        "history",
        "fields",
        "knob",
        "generation_prompt",
    } <= value["thinking"].keys()
    many = several_to_json([report, report])
    assert many.keys() == {"schema", "tplaudit", "results"}
    assert many["results"][0] == {"source": report.template.source, **value}


def test_probing_twice_gives_the_same_bytes() -> None:
    import json

    one, other = (json.dumps(to_json(probe(load_template(template("strict"))))) for _ in range(2))
    assert one == other


def test_a_placement_to_show() -> None:
    case = next(case for case in PLAIN if case.pair == "tool/tail" and case.leading and case.role == "system")
    shown = show_placement(load_template(template("in-place")), case)
    assert shown["prompt_with"].startswith(shown["prompt_before"].rstrip())
    assert shown["messages"][shown["run"][0]]["role"] == "system"
    assert shown["verdict"] == "in-place"
    strict = show_placement(load_template(template("strict")), case)
    assert strict["prompt_with"] is None
    assert strict["prompt_before"] is not None


def test_an_invalid_template_cannot_be_probed() -> None:
    with pytest.raises(InputError, match="not a valid chat template") as caught:
        report_on("line one\n{% if %}")
    assert caught.value.where == "t:2"
