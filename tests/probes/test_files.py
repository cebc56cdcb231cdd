from pathlib import Path

import pytest
from tplaudit.probes import files
from tplaudit.probes.errors import InputError


@pytest.mark.parametrize(
    ("data", "what", "line"),
    [
        (b'{"a": 1,}', "not valid JSON", ":1"),
        (b'{\n"a": }', "not valid JSON", ":2"),
        (b"[" * 100_000, "nested too deeply", ""),
        (b"[1]", "not a JSON object", ""),
        (b'{"a": "\xff"}', "not UTF-8 text", ""),
        (b'{"a": "\0"}', "a binary file", ""),
    ],
)
def test_what_is_no_json_object_is_refused_at_its_line(
    tmp_path: Path, data: bytes, what: str, line: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        files.read_json(path)
    assert what in caught.value.what
    assert caught.value.where == f"{path}{line}"


def test_an_endless_device_is_not_read_whole(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a binary file"):
        files.read_text(Path("/dev/zero"))


def test_lines_end_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_bytes(b"a\r\nb\rc\n")
    assert files.read_text(path) == "a\nb\nc\n"
