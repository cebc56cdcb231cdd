"""Bad input: one sentence on stderr, exit code 2, no traceback, within 40 seconds."""

import json
from pathlib import Path

import pytest
from tplaudit.fixtures import DEFAULT_MODEL, transcript

CHAT = transcript("chat")
MESSAGES = '{"role": "user", "content": "hi"}\n'

TRANSCRIPTS = {
    "broken line": (b'{"role": "user", "content": "hi"}\n{"role": \n', "broken line.jsonl:2"),
    "empty": (b"", "empty.jsonl"),
    "binary": (b"\x00\x01\xff\xfe" * 50, "binary.jsonl"),
    "no role": (b'{"role": "user", "content": "hi"}\n{"content": "x"}\n', "no role.jsonl:2"),
    "not messages": (b'{"messages": 3}\n', "not messages.jsonl"),
    "no messages": (b'{"messages": []}\n', "no messages.jsonl"),
}

TEMPLATES = {
    "loops for ever": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "eats memory": "{% set n = namespace(s='x' * 4096) %}"
    "{% for _ in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "one huge text": "{{ 'x' * 10 ** 10 }}",
    "one huge number": "{{ 9 ** (9 ** 9) }}",
    "leaves the sandbox": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "does not parse": "{% for m in messages %}",
    "renders nothing": "{% if false %}x{% endif %}",
    "always raises": "{{ raise_exception('no') }}",
}


def one_sentence(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line and not line.startswith("note: ")]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("tplaudit: ")
    assert "Traceback" not in stderr
    return lines[0]


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_bad_transcript(name: str, tmp_path: Path, tplaudit) -> None:
    content, where = TRANSCRIPTS[name]
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(content)
    done = tplaudit("replay", path, "--engine", "tokens")
    assert done.returncode == 2
    assert where in one_sentence(done.stderr)


def test_a_broken_line_keeps_the_turns_before_it(tmp_path: Path, tplaudit) -> None:
    path = tmp_path / "half.jsonl"
    lines = CHAT.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], "{", *lines[5:]]))
    done = tplaudit("replay", path, "--engine", "tokens", "--json")
    assert done.returncode == 2
    assert "half.jsonl:6" in one_sentence(done.stderr)
    report = json.loads(done.stdout)
    assert report["complete"] is False
    assert "half.jsonl:6" in report["error"]
    assert len(report["policies"][0]["turns"]) >= 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_bad_template(name: str, tmp_path: Path, tplaudit) -> None:
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATES[name])
    done = tplaudit("replay", CHAT, "--model", path)
    assert done.returncode == 2
    said = one_sentence(done.stderr)
    if name == "does not parse":
        assert f"{path}:1: not a valid chat template" in said
    elif name == "one huge number":  # which is computed when the template is compiled
        assert f"{path}: not a valid chat template" in said and "too slow" in said
    else:
        assert "no turn rendered under any policy" in said


def test_missing_model(tmp_path: Path, tplaudit) -> None:
    done = tplaudit("replay", CHAT, "--model", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere" in one_sentence(done.stderr)


def test_directory_without_a_tokenizer(tmp_path: Path, tplaudit) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    done = tplaudit("replay", CHAT, "--model", tmp_path)
    assert done.returncode == 2
    assert "tokenizer" in one_sentence(done.stderr)


def test_directory_without_a_template(tmp_path: Path, tplaudit) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((DEFAULT_MODEL / name).read_bytes())
    done = tplaudit("replay", CHAT, "--model", tmp_path)
    assert done.returncode == 2
    assert "template" in one_sentence(done.stderr)


@pytest.mark.parametrize("engine", ["tokens", "mlx"])
def test_broken_config(engine: str, tmp_path: Path, tplaudit) -> None:
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((DEFAULT_MODEL / name).read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": ')
    done = tplaudit("replay", CHAT, "--model", tmp_path, "--engine", engine)
    assert done.returncode == 2
    assert "config.json" in one_sentence(done.stderr)


def test_model_without_weights_on_the_real_engine(tmp_path: Path, tplaudit) -> None:
    for name in ("config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((DEFAULT_MODEL / name).read_bytes())
    assert tplaudit("replay", CHAT, "--model", tmp_path).returncode == 0
    done = tplaudit("replay", CHAT, "--model", tmp_path, "--engine", "mlx")
    assert done.returncode == 2
    assert "safetensors" in one_sentence(done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "no-such-server"),
        ("--policy", "as-is:colour=blue"),
        ("--kwargs", "enable_thinking"),
        ("--kwargs", "=1"),
        ("--now", "yesterday"),
        ("--cache-bytes", "lots"),
        ("--tokenizer", "nowhere.json"),
        ("--verify", "--engine", "tokens"),
    ],
)
def test_bad_options(arguments: tuple[str, ...], tplaudit) -> None:
    done = tplaudit("replay", CHAT, *arguments)
    assert done.returncode == 2
    assert one_sentence(done.stderr)


def test_unknown_option_is_a_usage_error(tplaudit) -> None:
    done = tplaudit("replay", CHAT, "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


def test_stdin(tplaudit) -> None:
    done = tplaudit("replay", "-", "--engine", "tokens", "--json", stdin=MESSAGES)
    assert done.returncode == 0
    assert json.loads(done.stdout)["transcript"] == "-"


def test_missing_turn_of_render(tplaudit) -> None:
    done = tplaudit("render", CHAT, "--turn", 99)
    assert done.returncode == 2
    assert "99" in one_sentence(done.stderr)
