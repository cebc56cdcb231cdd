"""Reading settings and requests: what the server's fields are, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.policies.servers.omlx_kwargs import ModelSettings
from tplaudit.probes.thinking.kwargs_files import read_request, read_settings


def write(folder: Path, value: Any) -> Path:
    path = folder / "file.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


FULL = {
    "chat_template_kwargs": {"x": 1},
    "enable_thinking": True,
    "preserve_thinking": None,
    "forced_ct_kwargs": ["x"],
    "thinking_budget_enabled": False,
    "thinking_budget_tokens": 100,
    "cache_reasoning_output": True,
    "temperature": 0.6,
}


def test_settings(tmp_path: Path) -> None:
    expected = ModelSettings({"x": 1}, True, None, ("x",), False, 100, True)
    assert read_settings(write(tmp_path, FULL)) == expected
    assert read_settings(write(tmp_path, {"version": 1, "models": {"a": FULL}})) == expected
    assert read_settings(write(tmp_path, {"models": {"a": FULL, "b": {}}}), "a") == expected
    assert read_settings(write(tmp_path, {"models": {"a": FULL, "b": {}}}), "b") == ModelSettings()
    assert read_settings(write(tmp_path, {})) == ModelSettings()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "broken JSON"),
        ("[]", "an array, not a JSON object"),
        ('{"x": NaN}', "not a JSON number"),
        ("[" * 200_000, "too deep|nested|array"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs is an array, not an object"),
        ({"enable_thinking": "yes"}, "enable_thinking is a string, not true or false"),
        ({"enable_thinking": 1}, "enable_thinking is a number"),
        ({"preserve_thinking": {}}, "preserve_thinking is an object"),
        ({"forced_ct_kwargs": "x"}, "forced_ct_kwargs is not a list of names"),
        ({"forced_ct_kwargs": [1]}, "forced_ct_kwargs is not a list of names"),
        ({"thinking_budget_tokens": True}, "thinking_budget_tokens is a boolean"),
        ({"thinking_budget_tokens": 1.5}, "thinking_budget_tokens is a number"),
        ({"models": {}}, "there is no model in it"),
        ({"models": {"a": {}, "b": {}}}, r"several models \(a, b\)"),
        ({"models": {"a": 3}}, "settings of 'a' are a number"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_settings(write(tmp_path, value))
    assert "file.json" in str(caught.value)
    assert caught.value.fix


MESSAGES = [{"role": "user", "content": "hi"}]


def test_request(tmp_path: Path) -> None:
    body = {
        "messages": MESSAGES,
        "chat_template_kwargs": {"x": 1},
        "reasoning_effort": "low",
        "thinking_budget": 512,
    }
    for value in (body, {"custom_id": "1", "body": body}):
        found = read_request(write(tmp_path, value))
        assert (found.kwargs, found.reasoning_effort, found.thinking_budget) == ({"x": 1}, "low", 512)
        assert found.request is not None
        assert found.request.messages[0].content == "hi"
        assert found.notes == ()
    assert read_request(write(tmp_path, {})).request is None


def test_what_is_not_read_is_said(tmp_path: Path) -> None:
    assert "none of the fields" in read_request(write(tmp_path, {"enable_thinking": True})).notes[0]
    anthropic = {"messages": MESSAGES, "thinking": {"type": "enabled"}}
    assert "Anthropic route" in read_request(write(tmp_path, anthropic)).notes[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "broken JSON"),
        ("null", "null, not a JSON object"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs is a string"),
        ({"reasoning_effort": 3}, "reasoning_effort is a number, not a string"),
        ({"thinking_budget": "512"}, "thinking_budget is a string, not an integer"),
        ({"messages": 3}, "messages is a number"),
        ({"messages": [{"content": "x"}]}, "has no role"),
        ({"body": {"thinking_budget": []}}, "thinking_budget is an array"),
    ],
)
def test_requests_that_are_refused(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_request(write(tmp_path, value))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary", "."):
        for read in (read_settings, read_request):
            with pytest.raises(InputError):
                read(tmp_path / name)
