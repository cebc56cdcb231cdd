"""`tplaudit policies` as a person runs it."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tplaudit.cli.formats.policies_text import draw_one
from tplaudit.probes.policies.pages import page, to_json
from tplaudit.probes.policies.registry import POLICIES

FOLDER = Path(__file__).parents[2] / "docs" / "policies"


def test_the_list_has_every_policy_with_its_facts(tplaudit) -> None:
    done = tplaudit("policies")
    assert done.returncode == 0
    words = set(done.stdout.replace("│", " ").split())
    for kind in POLICIES.values():
        assert kind.name in words
        assert {f"{kind.date},", kind.main_evidence, kind.cache} <= words
        assert set(kind.options) <= {word.strip(",") for word in words}


def test_the_list_as_json(tplaudit) -> None:
    document = json.loads(tplaudit("policies", "--json").stdout)
    assert document["schema"] == "tplaudit.policies/1"
    assert [each["name"] for each in document["policies"]] == list(POLICIES)
    for each in document["policies"]:
        assert set(each) == {
            "name", "summary", "source", "date", "evidence", "evidence_of", "options", "defaults", "cache",
            "drift",
        }  # fmt: skip
        assert all(value for key, value in each.items() if key not in ("options", "defaults"))
        assert set(each["defaults"]) == set(each["options"])
        assert each["evidence"] in each["evidence_of"].values()


@pytest.mark.parametrize("name", POLICIES)
def test_one_policy_is_explained_with_a_worked_example(name: str) -> None:
    kind = POLICIES[name]
    console = Console(width=100, record=True, file=StringIO())
    draw_one(kind, page(name), console)
    text = console.export_text()
    assert text.startswith(f"{name}\n{kind.summary}.\n")
    assert "```text\n" in text
    assert "## An example" in text
    for name_of_option, option in kind.options.items():
        assert f"{name_of_option}={option.choices};" in text.replace("\n", "").replace(" ", "")
    for part, evidence in kind.evidence.items():
        assert f"{part}: {evidence}, " in " ".join(text.split())
    drift = f"{kind.drift[0].upper()}{kind.drift[1:].rstrip('.')}."
    assert " ".join(drift.split()) in " ".join(text.split())
    assert "<!--" not in text
    assert "](../" not in text


@pytest.mark.parametrize("name", POLICIES)
def test_a_page_belongs_to_a_title(name: str) -> None:
    titles = [path.read_text().partition("\n")[0] for path in FOLDER.glob("*.md")]
    assert sum(name in title.removeprefix("# ").split(", ") for title in titles) == 1


def test_one_as_json(tplaudit) -> None:
    document = json.loads(tplaudit("policies", "omlx", "--json").stdout)
    (policy,) = document["policies"]
    assert policy == to_json(POLICIES["omlx"], documentation=True)
    assert policy["options"]["tool_note"] == ["on", "off"]
    assert "docs/servers.md, section 1" in policy["documentation"]


def test_other_spellings_name_the_same_policy(tplaudit) -> None:
    assert tplaudit("policies", "llama.cpp").stdout == tplaudit("policies", "llama-cpp").stdout
    assert tplaudit("policies", "oMLX:pr-1991").stdout.startswith("omlx\n")


def test_an_unknown_name_is_one_line(tplaudit) -> None:
    done = tplaudit("policies", "omxl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tplaudit: policies: there is no policy 'omxl'; did you mean omlx? ")
    assert done.stderr.count("\n") == 1


def test_listing_loads_nothing_heavy() -> None:
    heavy = "{'jinja2', 'transformers', 'tokenizers', 'mlx', 'numpy'}"
    code = (
        "import sys; from tplaudit.cli.app import app\n"
        "try: app(['policies'])\nexcept SystemExit: pass\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
