import msgspec
import pytest
from tplaudit.fixtures import template
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.placements.placements import PLAIN
from tplaudit.probes.placements.report import ProbeReport, probe, several_to_json, show_placement, to_json
from tplaudit.probes.templates.template import ChatTemplate


def report_on(text: str) -> ProbeReport:
    return probe(
        ChatTemplate(
            {"default": text}, source="t", special_tokens={"bos_token": "<bos>", "eos_token": "<eos>"}
        )
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
