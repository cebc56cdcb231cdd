from tplaudit.fixtures import template
from tplaudit.probes.findings import Finding
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.placements.findings import placement_findings, server_findings
from tplaudit.probes.placements.report import ProbeReport, probe
from tplaudit.probes.templates.template import ChatTemplate


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
