"""What oMLX concludes about reasoning, as its own functions do."""

import json
from pathlib import Path

import pytest
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.servers.omlx_reasoning import (
    detect_preserve_thinking,
    native_reasoning,
    output_cacheable,
)
from tplaudit.probes.templates.template import ChatTemplate


@pytest.mark.parametrize(
    ("setting", "native", "merged", "cacheable"),
    [
        pytest.param(None, True, None, True, id="C1"),
        pytest.param(None, True, False, False, id="C2"),
        pytest.param(None, False, True, True, id="C3"),
        pytest.param(None, False, None, False, id="C4"),
        pytest.param(False, True, True, False, id="C5"),
        pytest.param(True, False, False, True, id="C6"),
    ],
)
def test_output_cacheable(setting: bool | None, native: bool, merged: bool | None, cacheable: bool) -> None:
    assert output_cacheable(setting, native, merged) is cacheable


@pytest.mark.parametrize(
    ("detected", "model_type", "name", "native"),
    [
        (True, None, "x", True),
        (None, "qwen3_5", "Qwen3.6-27B", False),
        (None, "minimax_m3", "x", True),
        (None, "inkling_mm_model", "x", True),
        (None, "deepseek_v4", "x", True),
        (None, "deepseek_v41", "x", True),
        (None, "deepseek_v3", "x", False),
        (None, None, "MiniMax-M3-4bit", True),
        (None, None, "MiniMax-M2", False),
    ],
)
def test_native_reasoning(detected: bool | None, model_type: str | None, name: str, native: bool) -> None:
    assert native_reasoning(detected, model_type, name) is native


def test_detection_reads_what_the_server_reads(tmp_path: Path) -> None:
    names, silent = "{# preserve_thinking #}{{ messages }}", "{{ messages }}"
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": names}))
    assert detect_preserve_thinking(load_template(tmp_path)) is True
    assert detect_preserve_thinking(load_template(config)) is True
    config.write_text(json.dumps({"chat_template": [{"name": "default", "template": names}]}))
    assert detect_preserve_thinking(load_template(tmp_path)) is None
    assert detect_preserve_thinking(load_template(config)) is None
    config.write_text(json.dumps({"chat_template": names}))
    (tmp_path / "chat_template.jinja").write_text(silent)
    assert detect_preserve_thinking(load_template(tmp_path)) is None
    (tmp_path / "chat_template.jinja").write_text(names)
    assert detect_preserve_thinking(load_template(tmp_path)) is True
    assert detect_preserve_thinking(ChatTemplate({"default": names}, source="-")) is True
    assert detect_preserve_thinking(ChatTemplate({"default": names, "tool_use": names}, source="-")) is None
