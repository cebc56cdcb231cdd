"""The chat template and the special tokens of a GGUF file, read from its header.

The format: `gguf.md` in ggml-org/ggml, versions 2 and 3; the keys: `gguf-py/gguf/constants.py` of
ggml-org/llama.cpp. A header is a row of keys and values, and an array of texts has to be walked to find what
stands behind it; tensors, which follow the header, are never touched.

The package `gguf` reads the same, but keeps NumPy arrays of every token: a header with 262,144 tokens and
514,906 merges took its version 0.19 41 seconds and more than a gigabyte on a busy machine with two cores,
this module 0.15 seconds (both measured).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from ..errors import InputError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_TEMPLATE = "tokenizer.chat_template"
_TOKENS = "tokenizer.ggml.tokens"
_PART = "split.no"
#: Keys that hold a token's id, and what templates call the token. One is misspelt in the format itself.
_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token",
    "tokenizer.ggml.eos_token_id": "eos_token",
    "tokenizer.ggml.unknown_token_id": "unk_token",
    "tokenizer.ggml.seperator_token_id": "sep_token",
    "tokenizer.ggml.padding_token_id": "pad_token",
    "tokenizer.ggml.cls_token_id": "cls_token",
    "tokenizer.ggml.mask_token_id": "mask_token",
}

_STRING, _ARRAY = 8, 9
_INTEGERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 10: "Q", 11: "q"}
#: Bytes of a value, by type; the three that are no integers are float32, bool and float64.
_SIZES = {kind: struct.calcsize(f"<{letter}") for kind, letter in _INTEGERS.items()} | {6: 4, 7: 1, 12: 8}

#: Keys and texts in arrays that are walked; the largest vocabularies have some 800,000, merges included.
_MOST_ITEMS = 8_000_000
_LONGEST_KEY = 65_535
_LONGEST_TEMPLATE = 20_000_000


def read_gguf(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the chat templates of a GGUF file by name, and its special tokens by the names of transformers.

    Both are empty where the file has none. The template without a name is called `default`.

    Raises:
        InputError: the file cannot be read, is no GGUF file, ends within its header, contradicts the format,
            or is a later part of a split model, whose header is in the first part.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(_Header(data, str(path)))
    except (OSError, ValueError) as error:
        raise InputError(
            (getattr(error, "strerror", None) or str(error)).lower(), where=str(path), fix="check the path"
        ) from None


class _Header:
    """A position in a header, which moves on as values are read.

    `order` is the byte order of its numbers, `<` or `>`.
    """

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data = data
        self.where = where
        self.at = 0
        self.order = "<"
        self._items = 0

    def fail(self, what: str, fix: str = "download the file again") -> NoReturn:
        raise InputError(what, where=self.where, fix=fix)

    def count(self, items: int) -> int:
        """Take a number of items from what may be walked, so that no header takes long."""
        self._items += items
        if self._items > _MOST_ITEMS:
            self.fail(f"its header says that it has {items:,} keys or texts, too many to be true")
        return items

    def number(self, letter: str) -> int:
        size = struct.calcsize(self.order + letter)
        (value,) = struct.unpack(self.order + letter, self._take(size))
        return int(value)

    def text(self, longest: int, what: str) -> str:
        length = self.number("Q")
        if length > longest:
            self.fail(f"its header says that {what} has {length:,} bytes, too many to be true")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} in its header is not UTF-8 text")

    def skip(self, kind: int) -> None:
        """Pass over a value."""
        if kind == _STRING:
            self._skip_texts(1)
        elif kind != _ARRAY:
            self._move(self._size(kind))
        else:
            kind, items = self.number("I"), self.number("Q")
            if kind == _STRING:
                self._skip_texts(self.count(items))
            else:
                self._move(items * self._size(kind))

    def texts_at(self, at: int, wanted: set[int]) -> dict[int, str]:
        """Return some texts of the array at a position; those that it does not have are left out."""
        self.at = at
        if self.number("I") != _STRING:
            return {}
        items = self.number("Q")
        found: dict[int, str] = {}
        walked = 0
        for index in sorted(index for index in wanted if 0 <= index < items):
            self._skip_texts(index - walked)
            found[index] = self.text(_LONGEST_KEY, f"token {index}")
            walked = index + 1
        return found

    def _take(self, size: int) -> bytes:
        start = self.at
        self._move(size)
        return self.data[start : self.at]

    def _move(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            self.fail("the file ends within its header")

    def _skip_texts(self, items: int) -> None:
        length = struct.Struct(f"{self.order}Q").unpack_from
        data, at = self.data, self.at
        try:
            for _ in range(items):
                at += 8 + length(data, at)[0]
        except (struct.error, OverflowError):  # it begins behind the end
            at = len(data) + 1
        self._move(at - self.at)

    def _size(self, kind: int) -> int:
        if kind not in _SIZES:
            self.fail(f"a value in its header has the type {kind}, which GGUF does not have there")
        return _SIZES[kind]


def _read(header: _Header) -> tuple[dict[str, str], dict[str, str]]:
    if header.data[:4] != _MAGIC:
        header.fail("not a GGUF file", "give a .gguf file")
    header.at = 4
    version = header.number("I")
    if not version & 0xFFFF:
        header.order, header.at = ">", 4
        version = header.number("I")
    if version not in _VERSIONS:
        header.fail(
            f"version {version} of GGUF is not read", "convert the model again with a newer llama.cpp"
        )
    header.number("Q")  # of tensors
    templates: dict[str, str] = {}
    ids: dict[str, int] = {}
    tokens_at = None
    for _ in range(header.count(header.number("Q"))):
        key = header.text(_LONGEST_KEY, "a key")
        kind = header.number("I")
        if kind == _STRING and (key == _TEMPLATE or key.startswith(f"{_TEMPLATE}.")):
            name = key[len(_TEMPLATE) + 1 :] or "default"
            templates[name] = header.text(_LONGEST_TEMPLATE, "the chat template")
        elif kind in _INTEGERS and (key in _IDS or key == _PART):
            ids[key] = header.number(_INTEGERS[kind])
        else:
            if key == _TOKENS and kind == _ARRAY:
                tokens_at = header.at
            header.skip(kind)
    if not templates and ids.get(_PART):
        header.fail(
            "a later part of a split model, without its header", "give the first part, …-00001-of-….gguf"
        )
    return templates, _special_tokens(header, tokens_at, ids)


def _special_tokens(header: _Header, tokens_at: int | None, ids: Mapping[str, int]) -> dict[str, str]:
    if tokens_at is None:
        return {}
    named = {_IDS[key]: value for key, value in ids.items() if key in _IDS}
    texts = header.texts_at(tokens_at, set(named.values()))
    return {name: texts[value] for name, value in named.items() if value in texts}
