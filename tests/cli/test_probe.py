"""`tplaudit probe`, `rules` and `explain` as a person runs them."""

import json
from pathlib import Path

from commands import failed, heavy_modules, refused
from tplaudit.fixtures import MODELS, template

STRICT, IN_PLACE, DROPPING, MOVING = map(template, ("strict", "in-place", "dropping", "moving"))


def test_exit_codes(tplaudit) -> None:
    assert tplaudit("probe", IN_PLACE).returncode == 0
    assert tplaudit("probe", STRICT).returncode == 1
    assert tplaudit("probe", STRICT, "--fail-on", "never").returncode == 0
    assert tplaudit("probe", MOVING).returncode == 0  # warnings only
    assert tplaudit("probe", MOVING, "--fail-on", "warning").returncode == 1
    assert tplaudit("probe", IN_PLACE, "--fail-on", "note").returncode == 0


def test_an_invalid_template_is_told_with_its_line(tplaudit, tmp_path: Path) -> None:
    path = tmp_path / "bad.jinja"
    path.write_text("fine\n{% if %}", encoding="utf-8")
    assert f"{path}:2: not a valid chat template" in refused(tplaudit("probe", path))


def test_json_from_stdin_with_kwargs_and_tokens(tplaudit) -> None:
    text = "{{ bos_token }}" + STRICT.read_text(encoding="utf-8")
    kwargs = ("--kwargs", "enable_thinking=false", "--kwargs", "name=x")
    done = tplaudit("probe", "-", "--json", *kwargs, "--special-token", "bos_token=<B>", stdin=text)
    report = json.loads(done.stdout)
    assert report["schema"] == "tplaudit.probe/1"
    assert report["template"]["source"] == "-"
    assert report["kwargs"] == {"enable_thinking": False, "name": "x"}
    assert done.returncode == 1


def test_output_goes_to_a_file(tplaudit, tmp_path: Path) -> None:
    done = tplaudit("probe", IN_PLACE, "--json", "--output", tmp_path / "out.json")
    assert done.stdout == ""
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["findings"] == []


def test_a_folder_of_templates(tplaudit, tmp_path: Path) -> None:
    for number, path in enumerate((STRICT, IN_PLACE)):
        (tmp_path / f"{number}.jinja").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "00-bad.jinja").write_text("{% if %}", encoding="utf-8")
    (tmp_path / "readme.txt").write_text("no template", encoding="utf-8")
    done = tplaudit("probe", tmp_path, "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document.keys() == {"schema", "tplaudit", "results"}
    names = [Path(result["source"]).name for result in document["results"]]
    assert names == ["0.jinja", "00-bad.jinja", "1.jinja"]
    assert "not a valid chat template" in document["results"][1]["error"]
    assert {row["verdict"] for row in document["results"][2]["placements"]} == {"in-place"}
    assert tplaudit("probe", tmp_path, "--json", "--jobs", "2").stdout == done.stdout
    table = tplaudit("probe", tmp_path, "--fail-on", "never")
    assert table.returncode == 0
    assert (
        "✗ error" in table.stdout
        and "✓ in place" in table.stdout
        and "not a valid chat template" in table.stdout
    )


def test_several_models(tplaudit, tmp_path: Path) -> None:
    some = tplaudit("probe", IN_PLACE, tmp_path / "no.jinja", MODELS / "tiny", "--json", "--fail-on", "never")
    document = json.loads(some.stdout)
    # A person named it, and it is not there; what is there and no template is only a row.
    assert some.returncode == 2
    assert some.stderr == f"tplaudit: {tmp_path / 'no.jinja'}: no such file or directory; check the path\n"
    (tmp_path / "bad.jinja").write_text("{% if %}", encoding="utf-8")
    assert tplaudit("probe", IN_PLACE, tmp_path / "bad.jinja").returncode == 0
    errors = [result.get("error") for result in document["results"]]
    assert errors[0] is None and errors[2] is None and "no such file" in errors[1]
    said = failed(tplaudit("probe", tmp_path / "no.jinja", tmp_path / "nor.jinja"))
    assert "none of the inputs could be probed" in said


def test_accepted_findings_do_not_count(tplaudit, tmp_path: Path) -> None:
    ignore = tmp_path / "ignore.toml"
    ignore.write_text(
        '[[ignore]]\nrule = "system-raises"\nreason = "served behind a hoist"\n', encoding="utf-8"
    )
    done = tplaudit("probe", STRICT, "--ignore-file", ignore)
    assert done.returncode == 0
    assert "ignored: system-raises (served behind a hoist)" in done.stdout
    report = json.loads(tplaudit("probe", STRICT, "--ignore-file", ignore, "--json").stdout)
    assert report["ignored"][0]["reason"] == "served behind a hoist"
    assert "system-raises" not in {each["rule"] for each in report["findings"]}


def test_a_bare_template_needs_nothing_heavy() -> None:
    run = f"from tplaudit.cli.app import app; app(['probe', {str(STRICT)!r}, '--fail-on', 'never'])"
    assert heavy_modules(run) <= {"jinja2"}
