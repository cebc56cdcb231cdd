"""Templates and special tokens of model directories: what transformers finds, and what is no template."""

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.template_files import BARE_TOKENS, load_template

ADDED = {"content": "<eos>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": {"__type": "AddedToken", **ADDED},
    "pad_token": None,
    "image_token": "<image>",
}
NAMED = [{"name": "default", "template": "named default"}, {"name": "tool_use", "template": "named tools"}]
TOKENS_MAP = {"bos_token": {**ADDED, "content": "<map-bos>"}, "unk_token": "<map-unk>"}

DIRECTORIES: dict[str, dict[str, Any]] = {
    "a file": {"chat_template.jinja": "file", "tokenizer_config.json": CONFIG},
    "the configuration": {"tokenizer_config.json": {**CONFIG, "chat_template": "config"}},
    "a list of named templates": {"tokenizer_config.json": {**CONFIG, "chat_template": NAMED}},
    "a dict of named templates": {"tokenizer_config.json": {**CONFIG, "chat_template": {"default": "d"}}},
    "a file before the configuration": {
        "chat_template.jinja": "file",
        "tokenizer_config.json": {**CONFIG, "chat_template": NAMED},
    },
    "additional templates": {
        "chat_template.jinja": "file",
        "additional_chat_templates/tool_use.jinja": "more tools",
        "additional_chat_templates/rag.v2.jinja": "rag",
        "additional_chat_templates/notes.txt": "no template",
        "tokenizer_config.json": CONFIG,
    },
    "additional templates before the configuration": {
        "additional_chat_templates/tool_use.jinja": "more tools",
        "tokenizer_config.json": {**CONFIG, "chat_template": "config"},
    },
    "an additional default": {
        "chat_template.jinja": "file",
        "additional_chat_templates/default.jinja": "another default",
        "tokenizer_config.json": CONFIG,
    },
    "line ends": {"chat_template.jinja": b"a\r\nb\rc\n", "tokenizer_config.json": CONFIG},
    "an empty file": {"chat_template.jinja": "", "tokenizer_config.json": CONFIG},
    "the older tokens file": {
        "chat_template.jinja": "file",
        "special_tokens_map.json": TOKENS_MAP,
        "tokenizer_config.json": CONFIG,
    },
    "tokens of the model's own": {
        "chat_template.jinja": "file",
        "tokenizer_config.json": {
            **CONFIG,
            "video_token": {"__type": "AddedToken", **ADDED, "content": "<video>"},
            "add_bos_token": True,
            "sep_token": "",
            "token_count": "3",
            "extra_special_tokens": {"audio_token": "<audio>", "think": "<think>"},
        },
    },
    "a list of extra tokens": {
        "chat_template.jinja": "file",
        "tokenizer_config.json": {**CONFIG, "extra_special_tokens": ["<audio>"]},
    },
    "tokens of the model's own in the older file": {
        "chat_template.jinja": "file",
        "special_tokens_map.json": {**TOKENS_MAP, "boi_token": "<boi>", "additional_special_tokens": ["<x>"]},
        "tokenizer_config.json": CONFIG,
    },
    "the older tokens file alone": {"chat_template.jinja": "file", "special_tokens_map.json": TOKENS_MAP},
    "the older tokens file beside the newer way": {
        "chat_template.jinja": "file",
        "special_tokens_map.json": TOKENS_MAP,
        "tokenizer_config.json": {
            **CONFIG,
            "added_tokens_decoder": {"1": {**ADDED, "content": "<s>", "special": True}},
        },
    },
}


def write(directory: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return directory


@pytest.mark.parametrize("name", DIRECTORIES)
def test_directories_are_read_as_by_transformers(name: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer

    write(tmp_path, DIRECTORIES[name])
    vocabulary = {"<unk>": 0, "<s>": 1, "<eos>": 2}
    Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))
    if not (tmp_path / "config.json").exists():
        (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    reference = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    template = load_template(tmp_path)

    texts = {name: source.text for name, source in template.sources.items()}
    theirs = reference.chat_template
    assert texts == (theirs if isinstance(theirs, dict) else {"default": theirs})
    assert template.special_tokens == reference.special_tokens_map
    assert template.source == str(tmp_path)


def test_a_configuration_file_and_a_bare_template(tmp_path: Path) -> None:
    config = {**CONFIG, "chat_template": "{{ bos_token }}config"}
    write(tmp_path, {"tokenizer_config.json": config, "bare.jinja": "{{ bos_token }}{{ eos_token }}"})
    messages = [{"role": "user", "content": "x"}]
    assert load_template(tmp_path / "tokenizer_config.json").render(messages) == "<s>config"
    assert load_template(tmp_path / "bare.jinja").render(messages) == "<bos><eos>"
    given = load_template(str(tmp_path / "bare.jinja"), special_tokens={"eos_token": "!"}, profile="raw")
    assert given.render(messages) == "<bos>!"
    assert given.profile == "raw"


def test_a_directory_with_nothing_but_a_template(tmp_path: Path) -> None:
    template = load_template(write(tmp_path, {"chat_template.jinja": "x"}))
    assert template.special_tokens == BARE_TOKENS


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"{{ bos_token }}\r\n!")))
    template = load_template("-")
    assert template.text == "{{ bos_token }}\n!"
    assert template.special_tokens == BARE_TOKENS
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff\xfe")))
    with pytest.raises(InputError, match="not UTF-8"):
        load_template("-")


def test_a_file_loads_neither_the_hub_nor_the_reader_of_gguf(tmp_path: Path) -> None:
    write(tmp_path, {"bare.jinja": "x", "tokenizer_config.json": {"chat_template": "x"}})
    names = ["huggingface_hub", "tplaudit.probes.models.hub", "tplaudit.probes.models.gguf"]
    code = (
        "import sys; from tplaudit.probes.models.template_files import load_template\n"
        f"for name in ({str(tmp_path / 'bare.jinja')!r}, {str(tmp_path)!r}): load_template(name)\n"
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "missing": ({}, "nothing.jinja", "no such file"),
    "a missing directory": ({}, "nothing", "no such file"),
    "an impossible name": ({}, "x" * 5000, "file name too long"),
    "binary under another name": ({"model.safetensors": b"\x08\0\0"}, "model.safetensors", "a binary file"),
    "an empty directory": ({}, ".", "no chat template here"),
    "a configuration without a template": ({"tokenizer_config.json": CONFIG}, ".", "no chat template here"),
    "the same, alone": ({"tokenizer_config.json": CONFIG}, "tokenizer_config.json", "no chat template here"),
    "broken JSON": (
        {"tokenizer_config.json": '{\n"a": 1,\n"b" 2}'},
        ".",
        r"tokenizer_config.json:3: not valid JSON",
    ),
    "nested JSON": ({"tokenizer_config.json": "[" * 100_000}, ".", "nested too deeply"),
    "an empty configuration": ({"tokenizer_config.json": ""}, ".", "not valid JSON"),
    "a huge number": ({"tokenizer_config.json": '{"a": ' + "9" * 5_000 + "}"}, ".", "not valid JSON"),
    "a list": ({"tokenizer_config.json": "[]"}, ".", "not a JSON object"),
    "a template that is a number": ({"tokenizer_config.json": {"chat_template": 3}}, ".", "neither a text"),
    "names without templates": (
        {"tokenizer_config.json": {"chat_template": [{"name": "x"}]}},
        ".",
        "neither",
    ),
    "a list of numbers": ({"tokenizer_config.json": {"chat_template": [3]}}, ".", "neither a text"),
    "binary": ({"chat_template.jinja": b"\x7fELF\0\0"}, ".", "a binary file"),
    "not UTF-8": ({"chat_template.jinja": "ü".encode("latin-1")}, ".", "not UTF-8"),
    "a broken tokens file": (
        {"chat_template.jinja": "x", "special_tokens_map.json": "{"},
        ".",
        "not valid JSON",
    ),
    "not a directory": ({"x.jinja": "x"}, "x.jinja/y.jinja", "not a directory"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_template_is_said_in_one_sentence(name: str, tmp_path: Path) -> None:
    files, path, message = BROKEN[name]
    write(tmp_path, files)
    with pytest.raises(InputError, match=message) as error:
        load_template(tmp_path / path)
    assert error.value.where is not None and error.value.where.startswith(str(tmp_path))
    assert error.value.__suppress_context__ or error.value.__context__ is None
    assert "\n" not in str(error.value)


def test_a_device_or_a_huge_file_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="binary"):
        load_template("/dev/zero")
    monkeypatch.setattr("tplaudit.probes.files._MAX_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        load_template(write(tmp_path, {"chat_template.jinja": "x" * 11}))


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.jsonl", '{"messages": [{"role": "user", "content": "{{ x }}"}]}\n{}\n', "this is a transcript"),
        (
            "a.jsonl",
            '\ufeff{"now": "2026-11-30"}\n{"role": "user", "content": "{% if %}"}',
            "this is a transcript",
        ),
        ("a.txt", '{\n "requests": [\n  {"messages": []}]}', "this is a transcript"),
        ("a.jinja", '[{"role": "user", "content": "hi"}]', "this is a transcript"),
        ("a.json", '{"requests": []}', "this is a transcript"),
        ("a.md", "# Notes\n\nNothing to fill in.\n", "there is no Jinja in it"),
        ("a.json", '{"model_type": "qwen3"}', "no chat template here"),
    ],
)
def test_what_plainly_is_no_template_is_refused(tmp_path: Path, name: str, text: str, what: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=what):
        load_template(tmp_path / name)


def test_a_constant_text_may_be_a_template_where_the_file_says_so(tmp_path: Path) -> None:
    for name in ("a.jinja", "a.j2"):
        (tmp_path / name).write_text("constant", encoding="utf-8")
        assert load_template(tmp_path / name).text == "constant"
    (tmp_path / "a.txt").write_text('{"a": 1}{{ messages }}', encoding="utf-8")
    assert load_template(tmp_path / "a.txt").text.endswith("{{ messages }}")
