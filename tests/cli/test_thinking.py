"""`tplaudit thinking` as a person runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import heavy_modules, refused

CASES = Path(__file__).parent.parent / "cases"
COMMENT_ONLY = CASES / "14-comment-only-preserve-thinking" / "template.jinja"
CLEAR = CASES / "15-clear-thinking-key" / "template.jinja"
STRICT = CASES / "29-strict-signature"


def document(tplaudit, *arguments: object, code: int = 0, **options: Any) -> dict[str, Any]:
    done = tplaudit("thinking", *arguments, "--json", **options)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_json_has_the_names_of_the_contract(tplaudit) -> None:
    found = document(tplaudit, CLEAR)
    assert found["schema"] == "tplaudit.thinking/1"
    assert found["template"]["source"] == str(CLEAR)
    assert len(found["template"]["sha256"]) == 64
    assert found["mentions"] == ["clear_thinking"]
    assert found["omlx_default"] is None
    (variable,) = found["variables"]
    assert {name: variable[name] for name in ("name", "effect", "unset", "true", "false", "keeps_with")} == {
        "name": "clear_thinking",
        "effect": True,
        "unset": "tool-loop-only",
        "true": "tool-loop-only",
        "false": "keeps",
        "keeps_with": False,
    }
    assert found["history"] == "tool-loop-only"
    assert set(found["fields"]) == {"reasoning", "thinking", "content-part", "inline"}
    assert found["knob"] == {"name": "clear_thinking", "value": False}
    assert found["generation_prompt"]["text"] == "<|im_start|>assistant\n<think>\n"
    assert found["generation_prompt"]["persists"] is False
    assert [finding["rule"] for finding in found["findings"]] == [
        "thinking-knob-missed",
        "generation-prompt-not-in-history",
    ]


def test_json_repeats(tplaudit) -> None:
    first = tplaudit("thinking", CLEAR, "--json").stdout
    assert first == tplaudit("thinking", CLEAR, "--json").stdout


def test_kwargs_are_laid_over(tplaudit) -> None:
    found = document(tplaudit, CLEAR, "--kwargs", "clear_thinking=false")
    assert (found["history"], found["as_given"]) == ("tool-loop-only", "keeps")
    assert found["kwargs"] == {"clear_thinking": False}


@pytest.mark.parametrize(("level", "code"), [("error", 0), ("warning", 1), ("note", 1), ("never", 0)])
def test_fail_on(tplaudit, level: str, code: int) -> None:
    document(tplaudit, COMMENT_ONLY, "--fail-on", level, code=code)


def test_special_tokens_and_stdin(tplaudit) -> None:
    text = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    text += "{% if add_generation_prompt %}{{ bos_token }}{% endif %}"
    found = document(tplaudit, "-", "--special-token", "bos_token=<go>", stdin=text)
    assert found["template"]["source"] == "-"
    assert found["generation_prompt"]["text"] == "<go>"


def test_several_models(tplaudit, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% if")
    found = document(tplaudit, CLEAR, broken)
    assert (found["schema"], len(found["results"])) == ("tplaudit.thinking/1", 2)
    assert found["results"][0]["history"] == "tool-loop-only"
    assert "not a valid chat template" in found["results"][1]["error"]
    assert found["results"][1]["source"] == str(broken)
    table = tplaudit("thinking", CLEAR, broken)
    assert table.returncode == 0
    assert "clear_thinking=false" in table.stdout
    assert "not examined" in table.stdout


def test_a_folder_of_templates(tplaudit, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jinja").write_text(CLEAR.read_text())
    found = document(tplaudit, tmp_path)
    assert [Path(result["source"]).name for result in found["results"]] == ["a.jinja", "b.jinja"]


def test_output_goes_to_a_file(tplaudit, tmp_path: Path) -> None:
    done = tplaudit("thinking", CLEAR, "--json", "--output", tmp_path / "out.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "out.json").read_text())["history"] == "tool-loop-only"


@pytest.fixture
def merge_files(tmp_path: Path) -> tuple[Path, Path]:
    settings, request = tmp_path / "settings.json", tmp_path / "request.json"
    settings.write_text(
        json.dumps({"chat_template_kwargs": {"x": 1}, "enable_thinking": False, "forced_ct_kwargs": ["x"]})
    )
    body = json.loads((STRICT / "case.json").read_text())["requests"][1]
    request.write_text(json.dumps({**body, "chat_template_kwargs": {"x": 2}, "reasoning_effort": "low"}))
    return settings, request


def test_a_merge_without_a_model(tplaudit, merge_files: tuple[Path, Path]) -> None:
    settings, request = merge_files
    found = document(tplaudit, "--settings", settings, "--request", request)
    assert found["template"] is None
    assert "history" not in found
    assert found["merge"]["kwargs"] == {"x": 1, "enable_thinking": False, "reasoning_effort": "low"}
    assert found["merge"]["dropped"] == ["x"]
    assert found["merge"]["prompt"] is None
    assert [(step["layer"], step["key"], step["outcome"]) for step in found["merge"]["steps"]] == [
        ("settings.chat_template_kwargs", "x", "set"),
        ("settings.enable_thinking", "enable_thinking", "set"),
        ("request.chat_template_kwargs", "x", "dropped"),
        ("request.reasoning_effort", "reasoning_effort", "set"),
    ]


def test_a_merge_with_a_model_shows_the_retry(tplaudit, merge_files: tuple[Path, Path]) -> None:
    settings, request = merge_files
    arguments = ("--settings", settings, "--request", request, STRICT / "template.jinja")
    found = document(tplaudit, *arguments)
    assert found["history"] == "never"
    assert found["merge"]["detected_default"] is True
    prompt = found["merge"]["prompt"]
    assert prompt["error"].startswith("TypeError: macro 'turn'")
    assert prompt["culprits"] == ["reasoning_effort"]
    assert prompt["retries"][0] == {
        "engine": "text",
        "dropped": ["x", "enable_thinking", "reasoning_effort", "tools"],
        "chars": 213,
        "error": None,
        "shared_chars": 12,
    }
    text = tplaudit("thinking", *arguments).stdout
    assert "dropped │ the settings force the key" in text
    assert "oMLX's text engine drops x, enable_thinking, reasoning_effort, tools without an error" in text


def test_the_command_lines_kwargs_are_laid_over_the_requests(
    tplaudit, merge_files: tuple[Path, Path]
) -> None:
    found = document(tplaudit, "--request", merge_files[1], "--kwargs", "reasoning_effort=high")
    assert found["merge"]["kwargs"] == {"x": 2, "reasoning_effort": "high"}
    assert found["merge"]["settings"] is None


@pytest.mark.parametrize("text", ["{", "[]", '{"chat_template_kwargs": 1}', '{"enable_thinking": "x"}', "\0"])
def test_hostile_settings(tplaudit, tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    assert str(path) in refused(tplaudit("thinking", "--settings", path))


def test_heavy_libraries_are_not_loaded() -> None:
    assert heavy_modules(f"from tplaudit.cli.app import app; app(['thinking', {str(CLEAR)!r}])") <= {"jinja2"}
