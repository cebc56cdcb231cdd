"""Rules, findings and the ignore file."""

import re
from pathlib import Path

import pytest
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
