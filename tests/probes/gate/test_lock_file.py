"""The signature file."""

import json
import shlex
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.errors import InputError
from tplaudit.probes.gate.lock import lock
from tplaudit.probes.gate.lock_file import read_lock, to_text

STRICT = Path(fixtures.__file__).parent / "gate" / "strict.jinja"


def in_view(value: dict, part: str, name: str, found: object) -> dict:
    """Return a signature with one entry of its only view changed or added."""
    view = value["views"][""]
    return value | {"views": {"": view | {part: view[part] | {name: found}}}}


def test_it_is_the_same_each_time_and_holds_no_text() -> None:
    text = to_text(lock(str(STRICT)))
    assert text == to_text(lock(str(STRICT)))
    assert "im_start" not in text
    assert len(text) < 20_000
    assert json.loads(text)["schema"] == "tplaudit.lock/1"


def test_what_is_read_is_what_was_written(written) -> None:
    path = written(STRICT, kwargs={"enable_thinking": False}, special_tokens={"bos_token": "<s>"})
    assert to_text(read_lock(path)) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda value: value | {"schema": "other"}, "not a signature"),
        (lambda value: value | {"shapes": 0}, "rendered other conversations"),
        (lambda value: value | {"views": 3}, "broken signature file: views: expected `object`, got `int`"),
        (lambda value: value | {"views": {"": {}}}, "broken"),
        (lambda value: value | {"variants": [["enable_thinking", [1]]]}, "broken"),
        (lambda value: value | {"model": {"special_tokens": 3, "model_type": None}}, "broken"),
        (lambda value: in_view(value, "placements", "user/tail", "nowhere"), "invalid enum value 'nowhere'"),
        (lambda value: in_view(value, "placements", "user/nowhere", "raises"), "there is no placement"),
        (lambda value: in_view(value, "prompts", "plain/nothing", []), "there is no conversation"),
        (lambda value: value | {"now": "noon"}, "broken"),
        (lambda value: in_view(value, "thinking", "reasoning_content", 3), "broken"),
        (lambda value: in_view(value, "findings", "unheard-of", None), "there is no finding unheard-of"),
        (lambda value: in_view(value, "prompts", "plain/question", [[1, 2]]), "broken"),
        (lambda value: [value], "not a signature"),
    ],
)
def test_broken_signatures(written, change, what: str) -> None:
    path = written(STRICT)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=what):
        read_lock(path)


def test_no_signature(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_lock(tmp_path / "none")
    (tmp_path / "text").write_text("not JSON")
    with pytest.raises(InputError, match="not a signature"):
        read_lock(tmp_path / "text")


def changed(written, source: Path, **values: object) -> Path:
    """Return a signature of a template in which something is another value."""
    path = written(source)
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return path


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"schema": "tplaudit.lock/9", "tplaudit": "9.1"}, "written by tplaudit 9.1 as tplaudit.lock/9"),
        ({"shapes": 0}, "written by tplaudit 0.1.0, which rendered other conversations"),
    ],
)
def test_a_signature_of_another_version_says_how_to_renew_it(
    written, values: dict[str, object], what: str
) -> None:
    path = changed(written, STRICT, kwargs={"a b": "it's"}, **values)
    with pytest.raises(InputError) as raised:
        read_lock(path)
    assert what in raised.value.what
    command = shlex.split(raised.value.fix.removeprefix("write it anew: "))
    assert command == ["tplaudit", "lock", str(STRICT), "--file", str(path), "--kwargs", 'a b="it\'s"']
