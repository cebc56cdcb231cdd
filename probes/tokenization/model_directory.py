"""A model directory's tokenizer as transformers sets it up, with `tokenizers` alone.

Source: `PreTrainedTokenizerBase._from_pretrained`, `TokenizersBackend.__init__` and the classes named below,
of huggingface/transformers 5.24. Besides tokenizer.json they read tokenizer_config.json and, where that has
no `added_tokens_decoder`, special_tokens_map.json and added_tokens.json; tokens that only those name are
added. Tests compare the whole state, not only ids, with what the installed transformers loads.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .tokenizer_class import MISTRAL_TYPES, PLAIN, tokenizer_class

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

#: The names of special tokens that every tokenizer has; others come after them, in the order of the files.
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN3_5_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = "<|endoftext|>"
_QWEN_TOKENS = {"unk_token": _END, "eos_token": _END, "pad_token": _END}
_LLAMA_TOKENS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_GEMMA_TOKENS = {
    "unk_token": "<unk>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}


class OnlyTransformersError(Exception):
    """Only transformers can tell how a directory's tokenizer is loaded; the text says why, in a clause."""


@dataclass(frozen=True, slots=True)
class LoadedDirectory:
    """A tokenizer, and the special tokens that a template sees.

    Attributes:
        backend: the tokenizer.
        special_tokens: by name.
    """

    backend: Backend
    special_tokens: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _RebuiltClass:
    """A class that keeps the vocabulary of tokenizer.json and sets up everything else itself.

    Attributes:
        build: makes the tokenizer from vocabulary, merges, settings and special tokens.
        tokens: special tokens that it has where the settings do not name them.
        adds_named: whether it adds the special tokens once more, as special ones.
    """

    build: Callable[[dict[str, int], list[tuple[str, str]], Mapping[str, Any], Mapping[str, Any]], Backend]
    tokens: Mapping[str, str]
    adds_named: bool = False


def load_model_directory(directory: Path, load_file: Callable[[Path], Backend]) -> LoadedDirectory:
    """Load the tokenizer of a directory that has a tokenizer.json.

    Args:
        directory: a model directory whose JSON files are valid.
        load_file: loads a tokenizer.json as it is.

    Raises:
        OnlyTransformersError: another class is meant than those known here, or a setting that is not.
    """
    config = _read(directory / "config.json")
    settings = _read(directory / "tokenizer_config.json") or {}
    path = directory / "tokenizer.json"
    text = path.read_text(encoding="utf-8", errors="replace")
    name = tokenizer_class(config, settings, byte_level='"ByteLevel"' in text)
    _check_known(directory, config or {}, settings, name)
    if name == PLAIN:
        backend = load_file(path)
        return _complete(backend, _settings(directory, settings, text, {}), backend.padding)
    rebuilt = _REBUILT[str(name)]
    read = _settings(directory, settings, text, rebuilt.tokens)
    try:
        state = json.loads(text)
        vocabulary = state["model"]["vocab"]
        merges = [_merge(merge) for merge in state["model"]["merges"]]
        backend = rebuilt.build(vocabulary, merges, settings, read.named)
    except Exception as error:  # the library raises plain Exception
        load_file(path)  # says what is wrong with the file, if anything is
        raise OnlyTransformersError(f"its class {name} makes something else of tokenizer.json") from error
    return _complete(backend, read, state.get("padding"), adds_named=rebuilt.adds_named)


def _check_known(
    directory: Path, config: Mapping[str, Any], settings: Mapping[str, Any], name: str | None
) -> None:
    if name is None:
        raise OnlyTransformersError("its files do not say enough about the class of its tokenizer")
    if name != PLAIN and name not in _REBUILT:
        raise OnlyTransformersError(f"its class is {name}")
    tekken = (directory / "tekken.json").is_file() and config.get("model_type") in MISTRAL_TYPES
    if tekken and importlib.util.find_spec("mistral_common") is not None:
        raise OnlyTransformersError("mistral-common loads its tekken.json")
    for key in ("fix_mistral_regex", "init_inputs"):
        if settings.get(key):
            raise OnlyTransformersError(f"its tokenizer_config.json sets {key}")


# What the files say about added and special tokens


@dataclass(frozen=True, slots=True)
class _TokenSettings:
    """What the files say about tokens, as transformers collects it.

    Attributes:
        added: added tokens by id.
        named: special tokens by name, the standard names first; each a text or an AddedToken.
        extra: special tokens without a name.
        split_special_tokens: whether special tokens in a text are encoded as ordinary text.
    """

    added: Mapping[int, AddedToken]
    named: Mapping[str, Any]
    extra: Sequence[Any]
    split_special_tokens: bool


def _settings(
    directory: Path, config: Mapping[str, Any], text: str, defaults: Mapping[str, str]
) -> _TokenSettings:
    settings = dict(config)
    if settings.get("additional_special_tokens") is not None and not settings.get("extra_special_tokens"):
        settings["extra_special_tokens"] = settings.pop("additional_special_tokens")
    own = {
        key: settings.pop(key)
        for key in list(settings)
        if key not in _NAMES and key.endswith("_token") and isinstance(settings[key], str)
    }
    if isinstance(settings.get("extra_special_tokens"), dict):
        own |= settings.pop("extra_special_tokens")
    added: dict[int, Any] = {}
    if "added_tokens_decoder" in settings:
        for index, token in settings["added_tokens_decoder"].items():
            added[int(index)] = _added_token(token)
    else:
        own |= _read_special_tokens_map(directory, settings)
        added = _older_added_tokens(directory, settings, text)
    by_text = {str(token): token for token in added.values()}
    named: dict[str, Any] = {}
    for key in _NAMES:
        value = _token(key, settings.get(key, defaults.get(key)))
        if key in settings and value is not None:
            value = by_text.get(str(value), value)
        if value is not None:
            named[key] = value
    automatic = {
        key: _token(key, value)
        for key, value in settings.items()
        if key not in _NAMES and key.endswith("_token") and isinstance(value, dict)
    }
    named |= automatic | {key: _token(key, value) for key, value in own.items()}
    extra = settings.get("extra_special_tokens", settings.get("additional_special_tokens"))
    return _TokenSettings(
        added,
        named,
        [_token("extra_special_tokens", each) for each in extra or ()],
        bool(settings.get("split_special_tokens", False)),
    )


def _read_special_tokens_map(directory: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Take over special_tokens_map.json into the settings; return the tokens with names of their own."""
    for key, value in (_read(directory / "special_tokens_map.json") or {}).items():
        taken = value
        if isinstance(value, dict) and key != "extra_special_tokens":
            taken = _added_token({**value, "special": True})
        elif key == "extra_special_tokens" and isinstance(value, list):
            taken = list(settings.get(key) or [])
            for each in value:
                token = _added_token({**each, "special": True}) if isinstance(each, dict) else each
                if token not in taken:
                    taken.append(token)
        settings[key] = taken
    if isinstance(settings.get("extra_special_tokens"), dict):
        return dict(settings.pop("extra_special_tokens"))
    return {}


def _older_added_tokens(directory: Path, settings: Mapping[str, Any], text: str) -> dict[int, Any]:
    """Return the added tokens of added_tokens.json and, before those, of tokenizer.json."""
    from tokenizers import AddedToken

    added: dict[int, Any] = {}
    special = {str(settings[key]) for key in _NAMES if settings.get(key)}
    special |= {str(each) for each in settings.get("extra_special_tokens") or ()}
    for content, index in (_read(directory / "added_tokens.json") or {}).items():
        named = content in special
        added[index] = AddedToken(content, normalized=not named, special=named)
    for token in json.loads(text).get("added_tokens") or ():
        added[token["id"]] = _added_token(token)
    return added


def _token(key: str, value: Any) -> Any:
    """Return a token as a text or an AddedToken; None for none."""
    from tokenizers import AddedToken

    if value is None or isinstance(value, str | AddedToken):
        return value
    if isinstance(value, dict) and value.get("__type") == "AddedToken":
        return _added_token(value)
    raise OnlyTransformersError(f"its files give {key} in a form that is not known here")


def _added_token(token: Any) -> AddedToken:
    from tokenizers import AddedToken

    if not isinstance(token, dict):
        raise OnlyTransformersError("its files give an added token in a form that is not known here")
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(token["content"], **{flag: token[flag] for flag in flags if flag in token})


def _read(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None where there is no such file, or something else in it."""
    if not path.is_file():
        return None
    value = json.loads(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else None


# What the classes do


def _complete(
    backend: Backend, read: _TokenSettings, padding: Mapping[str, Any] | None, *, adds_named: bool = False
) -> LoadedDirectory:
    """Add the tokens that only the settings name, in the order of transformers, which decides their ids."""
    from tokenizers import AddedToken

    named = dict(read.named)
    if padding is not None and "pad_token" not in named:
        named["pad_token"] = padding["pad_token"]
        named = {key: named[key] for key in (*_NAMES, *named) if key in named}
    there = backend.get_added_tokens_decoder().values()
    known = {repr(token) for token in there}
    missing: list[Any] = [token for _, token in sorted(read.added.items()) if repr(token) not in known]
    texts = {str(token.content) for token in there} | {str(token) for token in missing}
    for token in (*named.values(), *read.extra):
        if str(token) not in texts and token not in missing:
            missing.append(token)
    names = {str(token) for token in named.values()}
    for position, token in enumerate(missing):
        if isinstance(token, str):
            missing[position] = AddedToken(token, special=True)
        elif not token.special and str(token) in names:
            token.special = True
    if missing:
        backend.add_tokens(missing)
    if adds_named:
        everything = dict.fromkeys(str(token) for token in (*named.values(), *read.extra))
        backend.add_tokens([AddedToken(token, special=True) for token in everything])
    backend.encode_special_tokens = read.split_special_tokens
    return LoadedDirectory(backend, {name: str(token) for name, token in named.items()})


def _merge(merge: Any) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _qwen(split: str) -> Callable[..., Backend]:
    def build(
        vocabulary: dict[str, int],
        merges: list[tuple[str, str]],
        settings: Mapping[str, Any],
        _: Mapping[str, Any],
    ) -> Backend:
        from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
        from tokenizers import Tokenizer as Backend

        backend = Backend(
            models.BPE(vocab=vocabulary, merges=merges, continuing_subword_prefix="", end_of_word_suffix="")
        )
        backend.decoder = decoders.ByteLevel()
        backend.normalizer = normalizers.NFC()
        prefix = bool(settings.get("add_prefix_space"))
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split), behavior="isolated", invert=False),
                pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
            ]
        )
        return backend

    return build


def _llama(
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    settings: Mapping[str, Any],
    _: Mapping[str, Any],
) -> Backend:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers

    prefix = settings.get("add_prefix_space")
    prefix = True if prefix is None else bool(prefix)
    scheme = ("always" if settings.get("legacy", False) else "first") if prefix else "never"
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=True, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    sequence = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        sequence.append(decoders.Strip(content=" ", left=1))
    backend.decoder = decoders.Sequence(sequence)
    return backend


def _gemma(
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    _: Mapping[str, Any],
    named: Mapping[str, Any],
) -> Backend:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    unknown = str(named.get("unk_token"))
    backend = Backend(
        models.BPE(vocab=vocabulary, merges=merges, fuse_unk=True, unk_token=unknown, byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Split(pattern=" ", behavior="merged_with_previous", invert=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    return backend


_REBUILT: Mapping[str, _RebuiltClass] = {
    "Qwen2Tokenizer": _RebuiltClass(_qwen(_QWEN2_SPLIT), _QWEN_TOKENS, adds_named=True),
    "Qwen3_5Tokenizer": _RebuiltClass(_qwen(_QWEN3_5_SPLIT), _QWEN_TOKENS),
    "LlamaTokenizer": _RebuiltClass(_llama, _LLAMA_TOKENS),
    "GemmaTokenizer": _RebuiltClass(_gemma, _GEMMA_TOKENS),
}
