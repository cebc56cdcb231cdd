"""Token ids of prompts, exact and incremental: what an earlier prompt shares is not encoded again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import InputError, RenderError
from ..text import common_prefix

Ids: TypeAlias = npt.NDArray[np.int32]
Positions: TypeAlias = npt.NDArray[np.int64]

#: Cuts at the end of a remembered text that a prompt may lack which takes its place: those of the generation
#: prompt, and of the message before it.
_MOST_REPLACED = 2
_REMEMBERED = 8  # texts: an encoder that serves interleaved conversations still finds the right one


class Tokenizer(Protocol):
    """Text to ids and back, as a server does it with a rendered prompt: no token is added to either end."""

    @property
    def name(self) -> str:
        """What a person called it: a path, or `characters`."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The named special tokens that a template sees (`bos_token`, `eos_token`, ...); may be empty."""
        ...

    def encode(self, text: str) -> Ids:
        """Return the ids of the whole text, shape (n,). Raises InputError for text that has no UTF-8 form."""
        ...

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return text for people; ids that end inside a character give U+FFFD."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids, and the places where encoding may be taken up again.

    Attributes:
        ids: shape (n,).
        starts: character offsets of added tokens at which the text may be cut, shape (k,), rising.
        indices: the index in `ids` of the added token that starts there, shape (k,), rising.
    """

    ids: Ids
    starts: Positions
    indices: Positions


@runtime_checkable
class ResumableTokenizer(Tokenizer, Protocol):
    """A tokenizer that knows where a text may be cut without changing its ids.

    The promise: where `encode_resumable(text)` names a start `s`, every text that has its first `s + reach`
    characters in common with `text` has the same ids before the token at `s`, and its other ids are those of
    the text from `s` on.
    """

    @property
    def reach(self) -> int:
        """How many characters, counted from an added token's start, decide that the text may be cut there."""
        ...

    @property
    def whole_text_reason(self) -> str | None:
        """Why no text may be cut, or None where some may."""
        ...

    def encode_resumable(self, text: str) -> Encoded:
        """Return the ids of the whole text and where it may be cut. Raises as `encode` does."""
        ...


class CharacterTokenizer:
    """One token per character; the id is the code point."""

    name = "characters"
    special_tokens: Mapping[str, str] = {}

    def encode(self, text: str) -> Ids:
        """Return the code points, shape (len(text),)."""
        return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<i4").astype(np.int32)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return the characters; what is no code point gives U+FFFD."""
        return "".join(chr(i) if 0 <= i < 0x110000 else "\ufffd" for i in map(int, ids))


def common_prefix_ids(a: Ids, b: Ids) -> int:
    """Return how many leading ids two sequences of shape (n,) and (m,) share."""
    length = min(len(a), len(b))
    start, step = 0, 256
    while start < length:  # in growing steps: what parts early is not compared to its end
        end = min(length, start + step)
        differs = a[start:end] != b[start:end]
        if differs.any():
            return start + int(differs.argmax())
        start, step = end, step * 4
    return length


@dataclass(frozen=True, slots=True)
class _RememberedEncoding:
    text: str
    encoded: Encoded


class IncrementalEncoder:
    """Encodes the growing prompts of a conversation; the ids are always those of whole-text encoding.

    A prompt is encoded from the last cut before its first character that differs from an earlier prompt; the
    last few are remembered. Where the tokenizer knows no safe cut, texts are encoded whole.

    That cutting is exact follows from the tokenizer's rules, and is checked against whole-text encoding all
    the same: on the first text (encoded again from a cut in its middle), on every `check_every`th text, and
    on the last one by `check`. After a difference every text is encoded whole.

    Args:
        tokenizer: any tokenizer; only a `ResumableTokenizer` is ever cut.
        check_every: texts between two checks; 0 for none but the one that `check` makes.

    Attributes:
        fallback_reason: why texts are encoded whole, one clause for people, or None while they are not.
        checks: how many texts were compared with whole-text encoding.
    """

    def __init__(self, tokenizer: Tokenizer, *, check_every: int = 100) -> None:
        self.tokenizer = tokenizer
        self.fallback_reason: str | None = None
        self.checks = 0
        self._check_every = check_every
        self._texts = 0
        self._last_is_checked = True
        self._remembered: deque[_RememberedEncoding] = deque(maxlen=_REMEMBERED)
        self._resumable: ResumableTokenizer | None = None
        if not isinstance(tokenizer, ResumableTokenizer):
            self.fallback_reason = f"the tokenizer {tokenizer.name} has no places where a text may be split"
        elif tokenizer.whole_text_reason is not None:
            self.fallback_reason = tokenizer.whole_text_reason
        else:
            self._resumable = tokenizer

    def fork(self) -> IncrementalEncoder:
        """Return an encoder that begins with what this one remembers, and leaves this one as it is."""
        other = IncrementalEncoder(self.tokenizer, check_every=0)
        other.fallback_reason, other._resumable = self.fallback_reason, self._resumable
        other._remembered = self._remembered.copy()
        return other

    def encode(self, text: str) -> Ids:
        """Return the ids of `text`, shape (n,), read-only.

        Raises:
            RenderError: the tokenizer cannot encode what the template wrote (kind `EncodingError`).
        """
        try:
            return self._encode(text)
        except InputError as error:
            raise RenderError("EncodingError", error.what) from error

    def _encode(self, text: str) -> Ids:
        if self._resumable is None:
            return self.tokenizer.encode(text)
        encoded = self._resume(self._resumable, text)
        self._texts += 1
        if encoded is None:
            self._fall_back(f"text {self._texts} did not start with the token before which it was split")
            return self.tokenizer.encode(text)
        encoded.ids.flags.writeable = False
        self._remembered.append(_RememberedEncoding(text, encoded))
        return encoded.ids if self._passes() else self.tokenizer.encode(text)

    def check(self) -> bool:
        """Compare the last text's ids with whole-text encoding, unless that was done already.

        Returns:
            Whether they are equal. If not, ids given out since the previous check may be wrong, and
            `fallback_reason` says so.
        """
        if self._last_is_checked or not self._remembered:
            return True
        last = self._remembered[-1]
        self.checks += 1
        self._last_is_checked = True
        if np.array_equal(last.encoded.ids, self.tokenizer.encode(last.text)):
            return True
        self._fall_back(f"text {self._texts} had other ids than when encoded whole")
        return False

    def _passes(self) -> bool:
        """Check the text just encoded, if its turn has come."""
        if not self._check_every:
            return True
        if self._texts == 1:
            return self._check_middle()
        return self._texts % self._check_every != 0 or self.check()

    def _resume(self, tokenizer: ResumableTokenizer, text: str) -> Encoded | None:
        """Encode from the last safe cut; None where the tokenizer breaks its promise."""
        closest, shared = None, -1
        for earlier in self._remembered:
            length = common_prefix(earlier.text, text)
            if length >= shared:
                closest, shared = earlier, length
        best, kept = closest.encoded if closest else None, 0
        if best is not None:
            kept = int(np.searchsorted(best.starts, shared - tokenizer.reach, side="right"))
            if len(best.starts) - kept <= _MOST_REPLACED:  # the same conversation goes on
                self._remembered = deque(
                    (each for each in self._remembered if each is not closest), maxlen=_REMEMBERED
                )
        if best is None or not kept:
            self._last_is_checked = True  # encoded whole: there is nothing to compare
            return tokenizer.encode_resumable(text)
        start, index = int(best.starts[kept - 1]), int(best.indices[kept - 1])
        tail = tokenizer.encode_resumable(text[start:])
        if not len(tail.ids) or tail.ids[0] != best.ids[index]:
            return None
        self._last_is_checked = False
        return Encoded(
            ids=np.concatenate((best.ids[:index], tail.ids)),
            starts=np.concatenate((best.starts[: kept - 1], tail.starts + start)),
            indices=np.concatenate((best.indices[: kept - 1], tail.indices + index)),
        )

    def _check_middle(self) -> bool:
        """Encode the first text again from its middle cut and compare."""
        text, encoded = self._remembered[-1].text, self._remembered[-1].encoded
        if not len(encoded.starts):
            return True
        middle = len(encoded.starts) // 2
        start, index = int(encoded.starts[middle]), int(encoded.indices[middle])
        self.checks += 1
        if np.array_equal(encoded.ids[index:], self.tokenizer.encode(text[start:])):
            return True
        self._fall_back(f"the first text had other ids when split at character {start}")
        return False

    def _fall_back(self, reason: str) -> None:
        """Encode whole from now on."""
        self.fallback_reason = reason
        self._resumable = None
        self._remembered.clear()
