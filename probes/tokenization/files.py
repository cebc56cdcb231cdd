"""Tokenizers out of files: a tokenizer.json, or a model directory as a server loads it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..extras import INSTALL, has_transformers
from .model_directory import OnlyTransformersError, load_model_directory
from .tokens import CharacterTokenizer, Encoded, Ids, Positions, Tokenizer

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
_ANOTHER = "pass --tokenizer with a tokenizer.json, a model directory or `characters`"
_AGAIN = "download it again (a Git LFS pointer or an unfinished download looks like this)"
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken*.json")


class BackendTokenizer:
    """A tokenizer of Hugging Face's `tokenizers`, which splits a text at its added tokens before all else.

    What follows from that for cutting a text (`tokenizers/src/tokenizer/added_vocabulary.rs` of
    huggingface/tokenizers has the rules):

    - Added tokens with `normalized: false` are searched in the raw text, leftmost first and the longest among
      equals. Each stretch between them is then normalised, pre-tokenised and encoded on its own, so that a
      normaliser (NFC, Replace, Prepend) never sees beyond an added token.
    - A text is cut before such a token, never after it: the text from there on starts with the same token, so
      that nothing behind it becomes the text's first stretch (`Metaspace` with `prepend_scheme: first` treats
      that one differently), and whitespace that the token swallows (`rstrip`) goes with it.
    - Whether a match starts at `s` depends on the text up to `s` plus the length of the longest added token.
      That is `reach`; it covers tokens that contain others or begin alike, and half a token at a text's end.
    - A token that swallows whitespace on its left (`lstrip`) never takes any of the added token before it, so
      that it changes nothing before a cut. It is a place to cut itself where it swallowed none.
    - Tokens with `normalized: true` are searched after normalisation. They are places to cut where there is
      no normaliser and no added token strips whitespace (which might be theirs).
    - `single_word` and encoding special tokens as text (`split_special_tokens`) discard matches, which hides
      other tokens inside them: such a tokenizer is never cut.

    Args:
        backend: a tokenizer of our own; truncation and padding are switched off in it.
        name: what a person called it.
        special_tokens: the named special tokens.
    """

    def __init__(self, backend: Backend, name: str, special_tokens: Mapping[str, str] | None = None) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.name = name
        self.special_tokens = dict(special_tokens or {})
        self._backend = backend
        # The loaded state, not the file's: transformers adds tokens of its own.
        state = json.loads(backend.to_str())
        added = [token for token in state["added_tokens"] if token["content"]]
        self._places = _places(added, state["normalizer"])
        self._place_ids = np.array(sorted(self._places), dtype=np.int32)
        self._pattern = _pattern(added, self._places)
        self.reach = max((len(token["content"]) for token in added), default=0)
        self.whole_text_reason = _whole_text_reason(backend, added, self._places)

    def encode(self, text: str) -> Ids:
        """Return the ids of the whole text, shape (n,). Raises InputError for half a surrogate pair."""
        # The same ids without offsets take half the time.
        encoding = self._guarded(
            text, lambda: self._backend.encode_batch_fast([text], add_special_tokens=False)[0]
        )
        return np.array(encoding.ids, dtype=np.int32)

    def encode_resumable(self, text: str) -> Encoded:
        """Return the ids of the whole text and the added tokens before which it may be cut."""
        ids = self.encode(text)
        added = np.flatnonzero(np.isin(ids, self._place_ids))
        searched = self._searched(text, ids[added])
        if searched is not None:
            return Encoded(ids, searched, added)
        encoding = self._guarded(text, lambda: self._backend.encode(text, add_special_tokens=False))
        starts, indices = [], []
        for index in added.tolist():
            span = encoding.token_to_chars(index)
            # Not so where whitespace was swallowed on the left, or where the model itself gave that id to
            # other text, e.g. after lower-casing.
            if span is not None and text.startswith(self._places[int(ids[index])], span[0]):
                starts.append(span[0])
                indices.append(index)
        return Encoded(ids, np.array(starts, dtype=np.int64), np.array(indices, dtype=np.int64))

    def _searched(self, text: str, added: Ids) -> Positions | None:
        """Return where these added tokens start; None where searching the text does not find just those.

        Half as long as asking the tokenizer for offsets.
        """
        if self._pattern is None:
            return None
        found = list(self._pattern.finditer(text))
        expected = [self._places[each] for each in added.tolist()]
        if [each.group() for each in found] != expected:
            return None
        return np.array([each.start() for each in found], dtype=np.int64)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return text for people, special tokens included."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def _guarded(self, text: str, encode: Callable[[], Encoding]) -> Encoding:
        try:
            return encode()
        except TypeError as error:
            raise _unencodable(text) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # Seen where a token swallows whitespace that belongs to another added token.
            what = f"the tokenizer crashed on the prompt ({_first_line(error)})"
            raise InputError(what, where=self.name, fix=_ANOTHER) from error


class PythonTokenizer:
    """A tokenizer that transformers runs in Python (ByT5 and the like): encoded whole, always.

    Args:
        tokenizer: a transformers tokenizer.
        name: what a person called it.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.name = name
        self.special_tokens = _special_tokens(tokenizer)
        self._tokenizer = tokenizer

    def encode(self, text: str) -> Ids:
        """Return the ids of the whole text, shape (n,). Raises InputError for half a surrogate pair."""
        try:
            # verbose=False: no warning about a model's longest input, which is not our subject
            ids = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        except (TypeError, UnicodeError) as error:
            raise _unencodable(text) from error
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return text for people, special tokens included."""
        return str(self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False))


def load_tokenizer(path: Path) -> Tokenizer:
    """Load the tokenizer that a server would use. Nothing is downloaded, no code of the directory is run.

    Args:
        path: a tokenizer.json, or a model directory, which gives the ids that transformers' `AutoTokenizer`
            gives: it chooses the tokenizer's class by `model_type` in config.json, which can change them.
            transformers itself is asked only where its class is not known here.

    Raises:
        InputError: if there is no tokenizer, or it cannot be read.
    """
    if path.is_dir():
        return _load_directory(path)
    if not path.exists():
        raise InputError("there is no such tokenizer", where=str(path), fix=_ANOTHER)
    return BackendTokenizer(_load_file(path), str(path))


def load_bundled_tokenizer() -> Tokenizer:
    """Load the bundled model's tokenizer, without importing transformers: its ids are tokenizer.json's."""
    from ...fixtures import DEFAULT_MODEL
    from ..files import read_json
    from .special_tokens import named_special_tokens

    tokens = named_special_tokens(read_json(DEFAULT_MODEL / "tokenizer_config.json"))
    return BackendTokenizer(_load_file(DEFAULT_MODEL / "tokenizer.json"), "bundled", tokens)


def load_tokenizer_named(spec: str) -> Tokenizer:
    """Load what a person named: `characters`, a tokenizer.json, or a model directory.

    Raises:
        InputError: if there is no such tokenizer, or it cannot be read.
    """
    return CharacterTokenizer() if spec == "characters" else load_tokenizer(Path(spec))


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from writing advice and warnings to stderr, its first import included."""
    before = os.environ.get(_ADVICE)
    os.environ[_ADVICE] = "1"
    try:
        from transformers.utils import logging as messages
    finally:
        if before is None:
            del os.environ[_ADVICE]
        else:
            os.environ[_ADVICE] = before
    verbosity = messages.get_verbosity()
    messages.set_verbosity(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        messages.set_verbosity(verbosity)


def _load_file(path: Path) -> Backend:
    from tokenizers import Tokenizer as Backend

    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        what = f"the file is not a tokenizer ({_first_line(error)})"
        raise InputError(what, where=str(path), fix=_AGAIN) from error


def _load_directory(path: Path) -> Tokenizer:
    for name in ("config.json", "tokenizer_config.json"):
        if (path / name).exists():
            _require_json_object(path / name)
    if not (path / "tokenizer.json").is_file():
        found = _vocabulary(path)
        return _load_with_transformers(path, f"of {found}" if found else "that has no tokenizer.json")
    try:
        loaded = load_model_directory(path, _load_file)
    except OnlyTransformersError as why:
        return _load_with_transformers(path, f"of this directory ({why})")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # What transformers says of such files is better than what could be said here.
        return _load_with_transformers(
            path, "of this directory (its files have a form that is not known here)"
        )
    _check_vocabulary(path, loaded.backend.get_vocab_size(), len(loaded.backend.get_added_tokens_decoder()))
    return BackendTokenizer(loaded.backend, str(path), loaded.special_tokens)


def _load_with_transformers(path: Path, which: str) -> Tokenizer:
    if not has_transformers():
        what = f"only transformers can load the tokenizer {which}, and it is not installed"
        raise InputError(what, where=str(path), fix=f"{INSTALL}, or {_ANOTHER}")
    with quiet_transformers():
        from transformers import AutoTokenizer

        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # dozens of classes, each with its own ideas of what to raise
            raise _load_error(path, error) from error
    _check_vocabulary(path, len(tokenizer), len(tokenizer.added_tokens_decoder))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return PythonTokenizer(tokenizer, str(path))
    backend.encode_special_tokens = bool(getattr(tokenizer, "split_special_tokens", False))
    return BackendTokenizer(backend, str(path), _special_tokens(tokenizer))


def _check_vocabulary(path: Path, size: int, added: int) -> None:
    """See that there is more than added tokens: without its file some classes start with nothing."""
    if size <= added:
        raise InputError("the directory has no tokenizer", where=str(path), fix=_ANOTHER)


def _vocabulary(path: Path) -> str | None:
    """Return the name of a file with a vocabulary; None where there is none."""
    return next((file.name for pattern in _VOCABULARIES for file in sorted(path.glob(pattern))), None)


def _load_error(path: Path, error: Exception) -> InputError:
    """Say which file is to blame for what transformers raised."""
    if _vocabulary(path) is None:
        return InputError("the directory has no tokenizer", where=str(path), fix=_ANOTHER)
    if (path / "tokenizer.json").exists():
        try:
            _load_file(path / "tokenizer.json")
        except InputError as blamed:
            return blamed
    if "trust_remote_code" in str(error):
        what = "the tokenizer is Python code of its repository, which is never run here"
        return InputError(what, where=str(path), fix=_ANOTHER)
    what = f"transformers cannot load the tokenizer ({_first_line(error)})"
    return InputError(what, where=str(path), fix=_ANOTHER)


def _require_json_object(path: Path) -> None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        what = f"the file is not JSON ({_first_line(error)})"
        raise InputError(what, where=str(path), fix=_AGAIN) from error
    if not isinstance(value, dict):
        raise InputError("the file is not a JSON object", where=str(path), fix=_AGAIN)


def _places(added: list[dict[str, Any]], normalizer: Mapping[str, Any] | None) -> dict[int, str]:
    """Return id and text of the added tokens before which a text may be cut (see BackendTokenizer)."""
    raw = _is_identity(normalizer) and not any(token["lstrip"] or token["rstrip"] for token in added)
    return {token["id"]: token["content"] for token in added if raw or not token["normalized"]}


def _pattern(added: list[dict[str, Any]], places: Mapping[int, str]) -> re.Pattern[str] | None:
    """Return what finds added tokens as a tokenizer does: leftmost first, the longest among equals.

    None where it would not: tokens that take white space before them begin earlier than their text, and
    those with `normalized` are searched when the others have been found.
    """
    alike = {token["normalized"] for token in added if token["id"] in places}
    if len(alike) != 1 or any(token["lstrip"] for token in added):
        return None
    return re.compile("|".join(map(re.escape, sorted(places.values(), key=len, reverse=True))))


def _is_identity(normalizer: Mapping[str, Any] | None) -> bool:
    return normalizer is None or (
        normalizer["type"] == "Sequence" and all(map(_is_identity, normalizer["normalizers"]))
    )


def _whole_text_reason(backend: Backend, added: list[dict[str, Any]], places: dict[int, str]) -> str | None:
    for token in added:
        if token["single_word"]:
            return f"the added token {token['content']} counts only as a word of its own"
    if backend.encode_special_tokens:
        return "the tokenizer encodes special tokens as ordinary text"
    return None if places else "the tokenizer has no added token before which a text may be split"


def _special_tokens(tokenizer: Any) -> dict[str, str]:
    return {name: text for name, text in tokenizer.special_tokens_map.items() if isinstance(text, str)}


def _unencodable(text: str) -> InputError:
    match = re.search("[\ud800-\udfff]", text)
    if match is None:
        return InputError("the tokenizer cannot encode the text")
    what = f"character {match.start()} of the prompt is half a surrogate pair (U+{ord(match.group()):04X})"
    return InputError(what, fix="repair the transcript's text, which no tokenizer can encode")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .:")[:160] if lines else type(error).__name__
