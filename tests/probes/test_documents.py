"""Reports as JSON, and what a file holds as a value of a type."""

import json
from dataclasses import dataclass

import msgspec
import pytest
from tplaudit import __version__
from tplaudit.probes.documents import plain, several, typed
from tplaudit.probes.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    names: tuple[str, ...]
    ratio: float


@dataclass(frozen=True, slots=True)
class Table:
    rows: tuple[Row, ...]
    counts: dict[int, int]


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tags: list[str] = msgspec.field(default_factory=list)


def test_a_report_becomes_what_json_would_read() -> None:
    report = Table((Row(("a", "\ud800"), float("nan")),), {1: 2})
    document = plain(report)
    assert document == {"rows": [{"names": ["a", "\ud800"], "ratio": None}], "counts": {"1": 2}}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_several_results_are_one_document() -> None:
    assert several("x/1", [{"a": 1}], verdict="pass") == {
        "schema": "x/1",
        "tplaudit": __version__,
        "verdict": "pass",
        "results": [{"a": 1}],
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"name": 3}, "here: name: expected `str`, got `int`; do this"),
        ({"name": "a", "tags": ["b", 3]}, "here: tags[1]: expected `str`, got `int`; do this"),
        ({}, "here: object missing required field `name`; do this"),
        ({"name": "a", "more": 3}, "here: object contains unknown field `more`; do this"),
        ([], "here: expected `object`, got `array`; do this"),
    ],
)
def test_what_does_not_fit_is_named(value: object, said: str) -> None:
    with pytest.raises(InputError) as raised:
        typed(value, Entry, "here", "do this")
    assert str(raised.value) == said


def test_what_fits() -> None:
    assert typed({"name": "a"}, Entry, "here", "do this") == Entry("a")
