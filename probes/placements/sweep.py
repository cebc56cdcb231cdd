"""Probing several inputs: folders of templates, and several models at once, in one process or more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import InputError, RenderError
from ..findings import Ignore
from ..models.bundled import bundled_model
from ..models.template_files import load_template
from ..models.template_info import Failure
from ..process_pool import LostItem, parallel_map
from .report import ProbeReport, failure, probe

#: Files by which a directory is known as a model's own.
_MODEL_FILES = ("chat_template.jinja", "tokenizer_config.json", "tokenizer.json", "config.json")


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What all inputs are probed with.

    Attributes:
        kwargs: chat-template kwargs of all renders.
        special_tokens: laid over each input's own.
        now: the clock that templates shall see.
        ignores: entries of an ignore file.
    """

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    now: datetime | None = None
    ignores: tuple[Ignore, ...] = ()


def folder_members(name: str) -> tuple[str, ...] | None:
    """Return the templates of a folder of templates, sorted; None where the name is none.

    A folder of templates is a directory without model files that holds `*.jinja`.
    """
    path = Path(name)
    if name == "-" or bundled_model(name) or not path.is_dir():
        return None
    if any((path / file).is_file() for file in _MODEL_FILES):
        return None
    return tuple(str(file) for file in sorted(path.glob("*.jinja"))) or None


def probe_input(name: str, settings: ProbeSettings) -> ProbeReport:
    """Load and probe one input.

    Raises:
        InputError: there is no template, or not a valid one.
    """
    template = load_template(name, special_tokens=settings.special_tokens)
    return probe(template, kwargs=settings.kwargs, now=settings.now, ignores=settings.ignores)


def sweep(names: Sequence[str], settings: ProbeSettings, jobs: int = 1) -> Iterator[ProbeReport | Failure]:
    """Probe several inputs and yield one result each, in their order; a bad one is a result too."""
    one = partial(_result, settings=settings)
    if jobs == 1 or len(names) == 1:
        yield from map(one, names)
        return
    with parallel_map(one, names, min(jobs, len(names))) as results:
        for name, result in zip(names, results, strict=True):
            yield failure(name, f"not probed: {result.reason}") if isinstance(result, LostItem) else result


def _result(name: str, settings: ProbeSettings) -> ProbeReport | Failure:
    try:
        return probe_input(name, settings)
    except (InputError, RenderError) as error:
        return failure(name, str(error))
