from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

LINES = b'{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n'


def _stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_stdin_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, LINES)
    transcript = open_transcript("-")
    assert transcript.source == "-"
    assert list(transcript) == list(transcript)
    assert [request.where for request in transcript] == ["stdin:1"]


def test_the_transcript_of_a_file_can_be_handed_to_another_process(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(LINES)
    transcript = open_transcript(path)
    assert list(pickle.loads(pickle.dumps(transcript))) == list(transcript)


def test_two_readers_of_stdin_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, LINES * 20_000)
    transcript = open_transcript("-")
    one = iter(transcript)
    first = [next(one) for _ in range(1000)]
    assert next(iter(transcript)) == first[0]
    assert sum(1 for _ in one) == 20_000 - len(first)


@pytest.mark.parametrize(("data", "sentence"), [(b"", "empty"), (b"{", "broken JSON"), (b"\0", "binary")])
def test_wrong_stdin_is_refused(monkeypatch: pytest.MonkeyPatch, data: bytes, sentence: str) -> None:
    _stdin(monkeypatch, data)
    with pytest.raises(InputError, match=f"^stdin.*{sentence}"):
        list(open_transcript("-"))


def test_closed_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="stdin is closed"):
        open_transcript("-")


def test_the_copy_of_stdin_has_no_name_and_a_forked_child_can_read_it(tmp_path: Path) -> None:
    program = """
import os, sys, tempfile
from pathlib import Path
from tplaudit.probes.transcripts.reader import open_transcript
transcript = open_transcript("-")
print(len(list(Path(tempfile.gettempdir()).iterdir())), flush=True)
if not (child := os.fork()):
    print(len(list(transcript)), flush=True)
    sys.exit()
os.waitpid(child, 0)
print(len(list(transcript)), flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=LINES,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.stdout.split() == [b"0", b"1", b"1"], done.stderr
    assert not list(tmp_path.iterdir())


def test_a_named_pipe_is_read_once_and_can_be_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(LINES,))
    writer.start()
    transcript = open_transcript(pipe)
    writer.join()
    assert transcript.source == str(pipe)
    assert len(list(transcript)) == len(list(transcript)) == 1


def test_an_endless_binary_device_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="binary"):
        open_transcript("/dev/zero")


def test_a_large_file_of_nul_bytes_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(InputError, match="binary"):
        open_transcript(path)


def test_missing_file() -> None:
    with pytest.raises(InputError, match=r"^no/such\.jsonl: there is no such file"):
        open_transcript("no/such.jsonl")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a directory"):
        open_transcript(tmp_path)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied"), "no permission"),
        (OSError(5, "Input/output error"), "Input/output"),
    ],
)
def test_a_file_that_cannot_be_opened(
    write: Write, monkeypatch: pytest.MonkeyPatch, error: OSError, sentence: str
) -> None:
    path = write({"role": "user", "content": "a"})

    def refuse(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError) as caught:
        open_transcript(path)
    assert caught.value.where == str(path)
    assert sentence in caught.value.what


def test_a_file_that_is_gone_at_the_second_reading(write: Write) -> None:
    path = write({"role": "user", "content": "a"})
    transcript = open_transcript(path)
    assert len(list(transcript)) == 1
    path.unlink()
    with pytest.raises(InputError, match="there is no such file"):
        list(transcript)


def test_a_name_that_is_no_utf8_can_be_printed(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    path.write_bytes(LINES)
    transcript = open_transcript(path)
    (request,) = transcript
    assert transcript.source.endswith("/\ufffd.jsonl")
    assert request.where.encode("utf-8")


def test_a_very_long_line(write: Write) -> None:
    text = "é" * 5_000_000
    (request,) = open_transcript(write({"role": "user", "content": text}))
    assert request.messages[0].content == text
