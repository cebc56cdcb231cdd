"""Bad input: one sentence on stderr, exit code 2, no traceback, within 40 seconds."""

import json
from pathlib import Path

import pytest
from commands import failed, refused
from tplaudit.fixtures import DEFAULT_MODEL, template, transcript

CHAT = transcript("chat")
STRICT, MOVING = template("strict"), template("moving")
TEXTS = ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")
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


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_bad_transcript(name: str, tmp_path: Path, tplaudit) -> None:
    content, where = TRANSCRIPTS[name]
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(content)
    assert where in refused(tplaudit("replay", path, "--engine", "tokens"))


def test_a_broken_line_keeps_the_turns_before_it(tmp_path: Path, tplaudit) -> None:
    path = tmp_path / "half.jsonl"
    lines = CHAT.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], "{", *lines[5:]]))
    done = tplaudit("replay", path, "--engine", "tokens", "--json")
    assert done.returncode == 2
    assert "half.jsonl:6" in done.stderr and done.stderr.count("\n") == 1
    report = json.loads(done.stdout)
    assert report["complete"] is False
    assert "half.jsonl:6" in report["error"]
    assert len(report["policies"][0]["turns"]) >= 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_bad_template(name: str, tmp_path: Path, tplaudit) -> None:
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATES[name])
    said = failed(tplaudit("replay", CHAT, "--model", path))
    if name == "does not parse":
        assert f"{path}:1: not a valid chat template" in said
    elif name == "one huge number":  # which is computed when the template is compiled
        assert f"{path}: not a valid chat template" in said and "too slow" in said
    else:
        assert "no turn rendered under any policy" in said


@pytest.mark.parametrize(
    ("files", "options", "word"),
    [
        (["chat_template.jinja", "config.json"], [], "tokenizer"),
        (["config.json", "tokenizer.json"], [], "template"),
        (["broken", *TEXTS], ["--engine", "tokens"], "config.json"),
        (["broken", *TEXTS], ["--engine", "mlx"], "config.json"),
        (["config.json", *TEXTS], ["--engine", "mlx"], "safetensors"),
    ],
)
def test_a_directory_that_lacks_something(files, options, word: str, tmp_path: Path, tplaudit) -> None:
    for name in files:
        if name == "broken":
            (tmp_path / "config.json").write_text('{"model_type": ')
        else:
            (tmp_path / name).write_bytes((DEFAULT_MODEL / name).read_bytes())
    assert word in refused(tplaudit("replay", CHAT, "--model", tmp_path, *options))


def test_a_model_without_weights_counts(tmp_path: Path, tplaudit) -> None:
    for name in ("config.json", *TEXTS):
        (tmp_path / name).write_bytes((DEFAULT_MODEL / name).read_bytes())
    assert tplaudit("replay", CHAT, "--model", tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", CHAT, "--policy", "no-such-server"), "there is no policy 'no-such-server'"),
        (("replay", CHAT, "--policy", "as-is:colour=blue"), "has no option 'colour'"),
        (("replay", CHAT, "--kwargs", "enable_thinking"), "not of the form KEY=VALUE"),
        (("replay", CHAT, "--kwargs", "=1"), "not of the form KEY=VALUE"),
        (("replay", CHAT, "--now", "yesterday"), "is not an ISO 8601 time"),
        (("replay", CHAT, "--cache-bytes", "lots"), "'lots' is not a size"),
        (("replay", CHAT, "--tokenizer", "nowhere.json"), "nowhere.json"),
        (("replay", CHAT, "--verify", "--engine", "tokens"), "nothing to verify"),
        (("replay", CHAT, "--no-such-option"), "--no-such-option"),
        (("replay", CHAT, "--model", "nowhere"), "nowhere"),
        (("render", CHAT, "--turn", 99), "99"),
        (("probe",), "MODEL"),
        (("probe", "missing.jinja"), "missing.jinja: no such file or directory; check the path"),
        (("probe", STRICT, "--kwargs", "novalue"), "not of the form KEY=VALUE"),
        (("probe", STRICT, "--show", "nowhere"), "there is no placement 'nowhere'"),
        (("probe", STRICT, "--show", "tool/tail,strange"), "there is no placement"),
        (("probe", STRICT, "--show", "tool/tail,no-tools"), "there is no placement"),
        (("probe", STRICT, MOVING, "--show", "tool/tail"), "shows one placement of one template"),
        (("probe", STRICT, "--ignore-file", "missing.toml"), "missing.toml: no such file"),
        (("probe", STRICT, "--now", "noon"), "is not an ISO 8601 time"),
        (("thinking",), "there is nothing to examine"),
        (("thinking", "--settings", "missing.json"), "missing.json: no such file or directory"),
        (("thinking", "--settings", "{}", STRICT, MOVING), "a merge is shown for one model"),
        (("thinking", STRICT, "--kwargs", "novalue"), "'novalue' is not of the form KEY=VALUE"),
        (("thinking", "missing.jinja"), "missing.jinja: no such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: tuple[object, ...], words: str, tplaudit) -> None:
    assert words in refused(tplaudit(*arguments))


def test_stdin(tplaudit) -> None:
    done = tplaudit("replay", "-", "--engine", "tokens", "--json", stdin=MESSAGES)
    assert done.returncode == 0
    assert json.loads(done.stdout)["transcript"] == "-"
