"""GGUF files, written here byte by byte: what is read from a header, and what a header may not do."""

import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.gguf import read_gguf
from tplaudit.probes.models.template_files import BARE_TOKENS, load_template

MESSAGES = [{"role": "user", "content": "hello"}]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}ü"
UINT8, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 5, 6, 7, 8, 9, 10
LETTERS = {UINT8: "B", 1: "b", 2: "H", 3: "h", UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?"} | {
    UINT64: "Q",
    11: "q",
    12: "d",
}
TOKENS = ["<unk>", "<s>", "</s>", "ü", "", "<pad>"]

Pairs = Iterable[tuple[str, int, Any]]


class Writer:
    """Writes keys and values as docs/gguf.md of ggml-org/ggml lays them out."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def number(self, kind: int, value: float) -> bytes:
        return struct.pack(self.order + LETTERS[kind], value)

    def text(self, text: str | bytes) -> bytes:
        data = text.encode() if isinstance(text, str) else text
        return self.number(UINT64, len(data)) + data

    def value(self, kind: int, value: Any) -> bytes:
        if kind == STRING:
            return self.text(value)
        if kind != ARRAY:
            return self.number(kind, value)
        inner, items = value
        head = self.number(UINT32, inner) + self.number(UINT64, len(items))
        return head + b"".join(self.value(inner, item) for item in items)

    def file(self, pairs: Pairs, version: int = 3, tensors: bytes = b"\0" * 64) -> bytes:
        pairs = list(pairs)
        head = (
            b"GGUF" + self.number(UINT32, version) + self.number(UINT64, 7) + self.number(UINT64, len(pairs))
        )
        body = (
            self.text(key) + self.number(UINT32, kind) + self.value(kind, value) for key, kind, value in pairs
        )
        return head + b"".join(body) + tensors


MODEL: tuple[tuple[str, int, Any], ...] = (
    ("general.architecture", STRING, "llama"),
    *((f"other.{kind}", kind, 1) for kind in LETTERS),
    ("tokenizer.ggml.tokens", ARRAY, (STRING, TOKENS)),
    ("tokenizer.ggml.scores", ARRAY, (FLOAT32, [0.5] * len(TOKENS))),
    ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b", "c d"])),
    ("tokenizer.ggml.nothing", ARRAY, (STRING, [])),
    ("tokenizer.ggml.bos_token_id", UINT32, 1),
    ("tokenizer.ggml.eos_token_id", INT32, 2),
    ("tokenizer.ggml.unknown_token_id", UINT64, 0),
    ("tokenizer.ggml.padding_token_id", UINT8, 5),
    ("tokenizer.ggml.seperator_token_id", UINT32, 0xFFFFFFFF),
    ("tokenizer.ggml.mask_token_id", INT32, -1),
    ("tokenizer.ggml.cls_token_id", UINT32, 1),
    ("tokenizer.chat_template", STRING, TEMPLATE),
    ("tokenizer.chat_templates", ARRAY, (STRING, ["tool_use"])),
    ("tokenizer.chat_template.tool_use", STRING, "tools"),
)
SPECIAL = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
}


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("order", "version"), [("<", 2), ("<", 3), (">", 3)])
def test_templates_and_special_tokens(order: str, version: int, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", Writer(order).file(MODEL, version))
    assert read_gguf(path) == ({"default": TEMPLATE, "tool_use": "tools"}, SPECIAL)


def test_the_order_of_the_keys_does_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", Writer().file(reversed(MODEL)))
    assert read_gguf(path) == ({"default": TEMPLATE, "tool_use": "tools"}, SPECIAL)


def test_it_is_loaded_by_its_suffix_or_by_how_it_begins(tmp_path: Path) -> None:
    data = Writer().file(MODEL)
    for name in ("model.gguf", "sha256-0123"):
        template = load_template(write(tmp_path / name, data))
        assert template.source == str(tmp_path / name)
        assert template.render(MESSAGES) == "<s>hello</s>ü"
        assert template.render(MESSAGES, tools=[{}]) == "tools"
    laid_over = load_template(tmp_path / "model.gguf", special_tokens={"eos_token": "!"})
    assert laid_over.render(MESSAGES) == "<s>hello!ü"


def test_without_a_vocabulary_it_is_a_bare_template(tmp_path: Path) -> None:
    kept = [pair for pair in MODEL if pair[0] != "tokenizer.ggml.tokens"]
    assert load_template(write(tmp_path / "model.gguf", Writer().file(kept))).special_tokens == BARE_TOKENS


def test_tensors_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", Writer().file(MODEL, tensors=b""))
    os.truncate(path, path.stat().st_size + 2**40)  # a sparse terabyte
    started = time.monotonic()
    assert read_gguf(path)[1] == SPECIAL
    assert time.monotonic() - started < 2


def test_wherever_it_ends_is_said(tmp_path: Path) -> None:
    whole = Writer().file(MODEL, tensors=b"")
    path = tmp_path / "model.gguf"
    for size in range(1, len(whole), 3):
        write(path, whole[:size])
        with pytest.raises(InputError, match=r"ends within its header|not a GGUF file") as caught:
            load_template(path)
        assert caught.value.where == str(path)


HUGE = 2**60
NUMBERS = Writer()


def claim(*parts: bytes) -> bytes:
    """A header that ends with a claim, and a megabyte of zeros behind it."""
    start = b"GGUF" + NUMBERS.number(UINT32, 3) + NUMBERS.number(UINT64, 0)
    return start + b"".join(parts) + b"\0" * 1_000_000


def array(kind: int, items: int) -> bytes:
    key = NUMBERS.text("tokenizer.ggml.tokens") + NUMBERS.number(UINT32, ARRAY)
    return NUMBERS.number(UINT64, 1) + key + NUMBERS.number(UINT32, kind) + NUMBERS.number(UINT64, items)


def text(length: int) -> bytes:
    key = NUMBERS.text("tokenizer.chat_template") + NUMBERS.number(UINT32, STRING)
    return NUMBERS.number(UINT64, 1) + key + NUMBERS.number(UINT64, length)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "too many keys": (claim(NUMBERS.number(UINT64, HUGE)), "too many to be true"),
    "more keys than bytes": (claim(NUMBERS.number(UINT64, 1_000_000)), "ends within its header"),
    "a key too long": (claim(NUMBERS.number(UINT64, 1), NUMBERS.number(UINT64, HUGE)), "too many to be true"),
    "too many texts": (claim(array(STRING, HUGE)), "too many to be true"),
    "more texts than bytes": (claim(array(STRING, 5_000_000)), "ends within its header"),
    "too many numbers": (claim(array(UINT32, 2**64 - 1)), "ends within its header"),
    "a text too long in an array": (
        claim(array(STRING, 2), NUMBERS.number(UINT64, 2**64 - 1)),
        "ends within",
    ),
    "a template too long": (claim(text(HUGE)), "the chat template has 1,152,921,504,606,846,976 bytes"),
    "a template longer than the file": (claim(text(19_000_000)), "ends within its header"),
    "arrays in an array": (claim(array(ARRAY, HUGE)), "has the type 9"),
    "an unknown type": (claim(array(99, 1)), "has the type 99"),
    "a template that is no text": (
        Writer().file([("tokenizer.chat_template", STRING, b"\xff\xfe")]),
        "the chat template in its header is not UTF-8 text",
    ),
    "version 1": (Writer().file(MODEL, 1), "version 1 of GGUF is not read; convert the model again"),
    "a pointer to the file": (b"version https://git-lfs.github.com/spec/v1\n", "not a GGUF file"),
    "an empty file": (b"", "empty"),
    "no template": (Writer().file(MODEL[:4]), "no chat template here; give the .jinja file or the directory"),
    "a later part": (Writer().file([("split.no", 2, 1)]), r"later part .* give the first part"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_said_in_one_sentence_and_soon(name: str, tmp_path: Path) -> None:
    data, said = HOSTILE[name]
    path = write(tmp_path / "model.gguf", data)
    started = time.monotonic()
    with pytest.raises(InputError, match=said) as caught:
        load_template(path)
    assert time.monotonic() - started < 5
    assert caught.value.where == str(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_template(tmp_path / "model.gguf")


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_files_of_the_format_s_own_writer(order: str, tmp_path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf", reason="the package gguf is not installed")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian[order])
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.5] * len(TOKENS))
    add: dict[Callable[[int], None], int] = {
        writer.add_bos_token_id: 1,
        writer.add_eos_token_id: 2,
        writer.add_unk_token_id: 0,
        writer.add_sep_token_id: 3,
        writer.add_pad_token_id: 5,
        writer.add_mask_token_id: 4,
    }
    for function, value in add.items():
        function(value)
    writer.add_chat_template([{"name": "default", "template": TEMPLATE}, {"name": "rag", "template": "rag"}])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "ü",
        "pad_token": "<pad>",
    }
    assert read_gguf(path) == ({"default": TEMPLATE, "rag": "rag"}, tokens | {"mask_token": ""})
