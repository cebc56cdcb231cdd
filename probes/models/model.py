"""What a replay runs on: a template, a tokenizer, and weights where there are some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...fixtures import DEFAULT_MODEL
from ..errors import InputError, UsageError
from ..files import read_json
from ..templates.template import ChatTemplate
from ..tokenization.files import load_bundled_tokenizer, load_tokenizer, load_tokenizer_named
from .bundled import bundled_model
from .hub import is_hub_id, snapshot
from .state_size import StateSize, state_size
from .template_files import check_compiles, load_template

if TYPE_CHECKING:
    from ..tokenization.tokens import Tokenizer

EngineName = Literal["tokens", "mlx"]
ModelKind = Literal["bundled", "directory", "hub", "template"]
#: Weights up to this size are computed with unless a person asks otherwise.
SMALL_WEIGHTS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Where a model is: all that running it needs.

    Attributes:
        source: what the person named; `bundled` where nothing was named.
        kind: how it was found.
        directory: the model directory.
        weights: size of the weights in bytes; None for bundled models, whose weights are made from a seed.
    """

    source: str
    kind: ModelKind
    directory: Path
    weights: int | None


@dataclass(frozen=True, slots=True)
class ReplayModel:
    """A template and a tokenizer, and where the weights are.

    Attributes:
        template: the chat template.
        tokenizer: what counts the tokens.
        source: what the person named; `bundled` where nothing was named.
        kind: how it was found.
        approximate: whether the tokenizer is not the model's own, so that counts are approximate.
        directory: the model directory, or the bundled one where only a template was given.
        weights: size of the weights in bytes; None for bundled models, whose weights are made from a seed.
        notes: what a reader has to know about the numbers.
    """

    template: ChatTemplate
    tokenizer: Tokenizer
    source: str
    kind: ModelKind
    approximate: bool
    directory: Path
    weights: int | None
    notes: tuple[str, ...] = ()

    @property
    def default_engine(self) -> EngineName:
        """The engine that is used unless a person asks for the other one."""
        if self.kind == "bundled":
            return "mlx"
        if self.kind == "template" or not self.weights or self.is_large:
            return "tokens"
        return "mlx"

    @property
    def is_large(self) -> bool:
        """Whether the weights are so large that a person has to ask for the engine that runs them."""
        return self.weights is not None and self.weights >= SMALL_WEIGHTS

    @property
    def state_size(self) -> StateSize:
        """What the layers keep, predicted from config.json; plain, of unknown size, where there is none."""
        config = self.directory / "config.json"
        return state_size(read_json(config), where=str(config)) if config.is_file() else StateSize()

    @property
    def bytes_per_token(self) -> int | None:
        """Bytes of K and V per token, predicted from config.json; None where that does not say."""
        return self.state_size.bytes_per_token


def find_model(name: str | None) -> FoundModel:
    """Find a model that is to run without a template and a tokenizer.

    Args:
        name: a model directory, the id of a model of the hub, the name of a bundled model, or None for the
            first of those.

    Raises:
        InputError: there is none, or it has no config.json.
        UsageError: there is no bundled model of that kind, or a template is named instead of a model.
    """
    found = _found("bundled" if name is None else name)
    if not found.directory.is_dir():
        if found.source == "-" or found.directory.exists():
            raise UsageError(
                "this is a template or another file, and no model", where=name, fix="name a model directory"
            )
        raise InputError("there is no such model directory", where=name, fix="check the path")
    if not (found.directory / "config.json").is_file():
        raise InputError(
            "the directory has no config.json", where=name, fix="name one with a config.json and weights"
        )
    return found


def _found(name: str) -> FoundModel:
    """Return where a model would be, by its name; a directory may not be there."""
    if bundled := bundled_model(name):
        return FoundModel(name, "bundled", bundled, None)
    hub = is_hub_id(name)
    directory = snapshot(name, weights=False) if hub else Path(name)
    weights = sum(file.stat().st_size for file in directory.glob("model*.safetensors"))
    return FoundModel(name, "hub" if hub else "directory", directory, weights)


def load_model(
    name: str | None,
    *,
    template: str | None = None,
    tokenizer: str | None = None,
    special_tokens: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> ReplayModel:
    """Find template, tokenizer and weights.

    Args:
        name: a model directory, the id of a model of the hub, whose texts are downloaded where they are not
            in the cache, a `.jinja` file, a `tokenizer_config.json`, `-` for a template on stdin, the name of
            a bundled model, or None for the first of those.
        template: a template that replaces the model's own.
        tokenizer: `characters`, a tokenizer.json or a directory that replaces the model's own.
        special_tokens: laid over the model's own.
        now: the clock for requests that bring none.

    Raises:
        InputError: something is missing or cannot be read, or the template is not valid Jinja.
        UsageError: there is no bundled model of that kind, or two templates are given.
    """
    options: dict[str, Any] = {"now": now}
    name = "bundled" if name is None else name
    found = _found(name)
    bundled, directory, weights = found.kind == "bundled", found.directory, found.weights
    if not directory.is_dir():
        if name != "-" and not directory.exists():
            raise InputError(
                "there is no such model directory or template",
                where=name,
                fix="check the path given as --model",
            )
        if template is not None:
            raise UsageError("--model is a template already, so --template cannot replace it")
        chat_template = load_template(name, special_tokens=special_tokens, **options)
        check_compiles(chat_template)
        used = load_tokenizer_named(tokenizer) if tokenizer else load_bundled_tokenizer()
        notes = () if tokenizer else (_APPROXIMATE,)
        return ReplayModel(
            chat_template, used, name, "template", tokenizer is None, DEFAULT_MODEL, None, notes
        )
    if tokenizer:
        used = load_tokenizer_named(tokenizer)
    else:
        used = load_bundled_tokenizer() if bundled else load_tokenizer(directory)
    own_tokens = dict(used.special_tokens) if not tokenizer else {}
    chat_template = load_template(
        template or (name if bundled else directory),
        special_tokens={**own_tokens, **(special_tokens or {})},
        **options,
    )
    check_compiles(chat_template)
    notes = ()
    if weights is not None and weights >= SMALL_WEIGHTS:
        notes = (
            f"the weights take {weights / 1e9:.1f} GB, so tokens are only counted; "
            "--engine mlx prefills with the real model",
        )
    return ReplayModel(
        template=chat_template,
        tokenizer=used,
        source=name,
        kind=found.kind,
        approximate=tokenizer is not None,
        directory=directory,
        weights=weights,
        notes=notes,
    )


_APPROXIMATE = (
    "token counts are approximate: a bare template has no tokenizer, so the bundled one counts; "
    "--tokenizer takes the model's tokenizer.json"
)
