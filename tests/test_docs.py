"""README.md and docs/: what they show is what the code does, and what they point to exists."""

import dataclasses
import importlib.util
import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_processes import run_command
from tplaudit import fixtures
from tplaudit.probes.cost import calibration
from tplaudit.probes.cost.calibration import model_identity
from tplaudit.probes.cost.cost_model import CostModel
from tplaudit.probes.cost.measure import calibrate, new_calibration
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.models.model import load_model
from tplaudit.probes.replay import replay_report as report

ROOT = Path(__file__).resolve().parents[1]


def _generator() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _generator()
PAGES = [*generate.pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
#: Its examples are of a policy that does not exist here: tests/test_contributing.py adds it.
GUIDE = ROOT / "CONTRIBUTING.md"
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}


def _name(value: object) -> str | None:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else None


def _parts() -> Iterator[Any]:
    for page, text in TEXTS.items():
        if page == GUIDE:
            continue
        for part in generate.PART.finditer(text):
            title = f"{page.name}: {part['kind']} {part['argument'] or ''}".strip()
            yield pytest.param(part["kind"], part["argument"], part["body"], id=title)


@pytest.mark.parametrize(("kind", "argument", "shown"), list(_parts()))
def test_what_a_page_shows_is_what_the_code_gives(kind: str, argument: str | None, shown: str) -> None:
    assert shown == generate.body(kind, argument), "run `make docs`"


@pytest.mark.parametrize("page", [page for page in PAGES if page != GUIDE], ids=_name)
def test_no_generated_part_is_misspelt(page: Path) -> None:
    text = TEXTS[page]
    openings = [line for line in text.splitlines() if line.startswith("<!-- ") and line != "<!-- end -->"]
    written_by_bench = openings.count("<!-- bench -->")
    assert len(openings) - written_by_bench == len(list(generate.PART.finditer(text)))


@pytest.mark.parametrize("name", generate.schemas())
def test_schema_files_are_current(name: str) -> None:
    assert (generate.SCHEMAS / name).read_text(encoding="utf-8") == generate.schemas()[name], (
        "run `make docs`"
    )


# Real output against the schema and the field tables


@pytest.mark.parametrize(
    "arguments",
    [
        ["claude-code", "--engine", "tokens", "--policy", "omlx"],
        ["chat", "--engine", "tokens", "--policy", "all"],
        ["chat", "--engine", "mlx", "--verify", "--policy", "as-is"],
        ["codex", "--engine", "tokens", "--cache-bytes", "1MB", "--tokenizer", "characters"],
    ],
    ids=" ".join,
)
def test_real_output_validates(arguments: list[str]) -> None:
    document = _replay(*arguments)
    schema = json.loads((generate.SCHEMAS / "replay-2.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert document["schema"] == report.SCHEMA == schema["title"]


def test_a_calibration_validates() -> None:
    engine = load_engine(load_model(None))
    identity = model_identity(load_model(None))
    *_, last = calibrate(engine, new_calibration(engine, identity), 256, repeats=1)
    schema = json.loads((generate.SCHEMAS / "calibration-1.json").read_text(encoding="utf-8"))
    document = calibration.to_json(last.calibration)
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert set(document["seconds"]) == {field.name for field in dataclasses.fields(CostModel)}
    page = TEXTS[ROOT / "docs" / "calibrate.md"]
    assert [name for name in [*document, *document["seconds"]] if f"`{name}`" not in page] == []


def test_the_schema_refuses_another_document() -> None:
    document = _replay("chat", "--engine", "tokens")
    schema = json.loads((generate.SCHEMAS / "replay-2.json").read_text(encoding="utf-8"))
    document["policies"][0]["turns"][0]["reused"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def _replay(name: str, *options: str) -> Any:
    done = run_command("replay", fixtures.transcript(name), "--json", *options, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _types(kind: Any, found: dict[str, type]) -> dict[str, type]:
    """Collect the dataclasses that a type is made of."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__name__ not in found:
        found[kind.__name__] = kind
        for each in typing.get_type_hints(kind).values():
            _types(each, found)
    for each in typing.get_args(kind):
        _types(each, found)
    return found


def _documented() -> dict[str, dict[str, str]]:
    """Return the types of the fields in docs/json.md, by heading."""
    tables: dict[str, dict[str, str]] = {}
    for section in TEXTS[ROOT / "docs" / "json.md"].split("\n### ")[1:]:
        rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", section, re.MULTILINE)
        tables[section.partition("\n")[0]] = dict(rows)
    return tables


TYPES = _types(report.ReplayReport, {})


def test_json_page_has_every_type() -> None:
    assert sorted(_documented()) == sorted(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_json_page_has_every_field_and_says_which_may_be_null(name: str) -> None:
    hints = typing.get_type_hints(TYPES[name])
    documented = _documented()[name]
    assert list(documented) == [each.name for each in dataclasses.fields(TYPES[name])]
    optional = {field for field, hint in hints.items() if type(None) in typing.get_args(hint)}
    assert {field for field, kind in documented.items() if kind.endswith("or null")} == optional
    for field, hint in hints.items():
        for inner in _types(hint, {}):
            if inner in str(hint):
                assert inner in documented[field]


# Links and references


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", TEXTS[page], flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if re.match(r"\w+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{target} is not there"
        assert path.is_relative_to(ROOT)
        if anchor:
            assert anchor in _anchors(path), f"{target} has no heading {anchor}"


def _sources() -> list[Path]:
    return [
        path for folder in ("cli", "probes", "fixtures") for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def test_pages_that_the_code_names_exist() -> None:
    named = {name for path in _sources() for name in re.findall(r"docs/[\w/-]+\.\w+", path.read_text())}
    assert "docs/servers.md" in named
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_sections_that_the_code_names_exist() -> None:
    text = TEXTS[ROOT / "docs" / "servers.md"]
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))
    named = {
        number
        for path in _sources()
        for number in re.findall(r"docs/servers\.md,\s+sections? (\d+(?:\.\d+)?)", path.read_text())
    }
    assert named
    assert named <= sections


def test_every_page_is_listed() -> None:
    docs = ROOT / "docs"
    index = TEXTS[docs / "index.md"]
    assert sorted(page.name for page in docs.glob("*.md") if f"({page.name})" not in index) == ["index.md"]
    policies = TEXTS[docs / "policies.md"]
    assert [
        page.name for page in docs.glob("policies/*.md") if f"(policies/{page.name})" not in policies
    ] == []


# Help


def _option_tables() -> dict[str, str]:
    """Return the generated option tables of all pages, by command."""
    parts = (part for text in TEXTS.values() for part in generate.PART.finditer(text))
    return {part["argument"]: part["body"] for part in parts if part["kind"] == "options"}


@pytest.mark.parametrize("command", list(generate.commands()))
def test_a_page_shows_every_option_that_help_shows(command: str) -> None:
    done = run_command(
        command, "--help", cwd=ROOT, timeout=120, environment={"NO_COLOR": "1", "COLUMNS": "200"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", done.stdout)) - {"--help"}
    assert command in _option_tables(), f"no page has <!-- options: {command} -->"
    documented = set(re.findall(r"`(--[a-z-]+)`", _option_tables()[command]))
    assert shown == documented


def test_readme_names_every_command() -> None:
    readme = TEXTS[ROOT / "README.md"]
    assert [name for name in generate.commands() if f"`tplaudit {name}" not in readme] == []
