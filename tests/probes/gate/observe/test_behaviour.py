"""Models with several templates, profiles and switches."""

import json
from pathlib import Path

from tplaudit.probes.gate.allowances import read_allowances
from tplaudit.probes.gate.subject import Subject

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
PLAIN += "{% if add_generation_prompt %}<assistant>{% endif %}"
TOOLS = "tools: {{ tools }}\n" + PLAIN


def model(folder: Path, **templates: str) -> Path:
    folder.mkdir()
    named = [{"name": name, "template": text} for name, text in templates.items()]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named, "bos_token": "<s>"}))
    return folder


def test_a_named_template_that_nobody_chooses_by_itself(gate, tmp_path: Path) -> None:
    base = model(tmp_path / "base", default=PLAIN, rag="rag\n" + PLAIN)
    head = model(tmp_path / "head", default=PLAIN, rag="RAG\n" + PLAIN)
    report = gate(base, head)
    (change,) = report.changes
    assert (change.kind, change.base, change.head) == ("changed", "rag", "RAG")
    assert all(subject.view == "rag" for subject in change.subjects)
    assert change.where.endswith("in the template named rag")
    assert gate(base, head, allowances=read_allowances(["changed:prompt-changed"])).verdict == "pass"


def test_a_named_template_is_missing_or_new(gate, tmp_path: Path) -> None:
    more = model(tmp_path / "more", default=PLAIN, rag="rag\n" + PLAIN)
    less = model(tmp_path / "less", default=PLAIN)
    (missing,) = gate(more, less).changes
    assert (missing.kind, missing.rule, missing.subjects) == (
        "regressed",
        "named-template",
        (Subject("templates", "rag"),),
    )
    (new,) = gate(less, more).changes
    assert (new.kind, new.rule) == ("changed", "named-template")


def test_a_tool_template_changes_requests_with_tools_alone(gate, tmp_path: Path) -> None:
    base = model(tmp_path / "base", default=PLAIN, tool_use=TOOLS)
    head = model(tmp_path / "head", default=PLAIN, tool_use=TOOLS.replace("tools:", "Tools:"))
    report = gate(base, head)
    assert report.outcome == "changed"
    usual = {s.group for change in report.changes for s in change.subjects if not s.view}
    assert "plain" not in usual
    assert "tools" in usual


def test_the_raw_profile(gate) -> None:
    reads = "{% if m.reasoning_content is defined %}({{ m.reasoning_content }}){% endif %}"
    base = PLAIN.replace("{{ m.content }}", reads + "{{ m.content }}")
    head = base.replace("m.reasoning_content", "m.thinking")
    report = gate(base, head)
    # transformers gives both names, so only servers that pass messages on as they are see a difference.
    assert report.outcome == "regressed"
    assert all(subject.variant == "raw" for change in report.changes for subject in change.subjects)


def test_a_switch(gate) -> None:
    base = PLAIN + "{% if enable_thinking is false %}<think></think>{% endif %}"
    head = PLAIN + "{% if enable_thinking is false %}<think>\n</think>{% endif %}"
    report = gate(base, head)
    (change,) = report.changes
    assert (change.kind, change.base, change.head) == ("changed", "", "\n")
    assert {subject.variant for subject in change.subjects} == {"enable_thinking=false"}
    assert "with enable_thinking=false" in change.message
    assert gate(base, head, kwargs={"enable_thinking": True}).outcome == "cosmetic"


def test_a_switch_that_only_one_side_has(gate) -> None:
    head = PLAIN.replace("<assistant>", "<assistant>{{ '!' if enable_thinking is false }}")
    report = gate(PLAIN, head)
    assert report.outcome == "changed"
    variants = {s.variant for change in report.changes for s in change.subjects}
    assert variants == {"enable_thinking=false", "off"}


def test_nothing_that_renders_is_a_failure(gate) -> None:
    text = "{{ raise_exception('never') }}"
    report = gate(text, text)
    assert (report.outcome, report.verdict, report.compared) == ("nothing-checked", "fail", 0)
    assert report.notes[0] == "nothing was checked: neither side renders any conversation"
