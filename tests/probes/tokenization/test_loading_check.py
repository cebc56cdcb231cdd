import json
from pathlib import Path

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.tokenization import files as tokenizer_files
from tplaudit.probes.tokenization.loading_check import check_loading


class Fixed:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def encode(self, text: str) -> list[int]:
        return self.ids


def model(tmp_path: Path, config: object | None) -> str:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "config.json is missing"),
        ({}, "config.json names no model_type"),
        ({"model_type": "no-such-model"}, "has no model of that name"),
        ([], "config.json cannot be read"),
    ],
)
def test_a_directory_that_loads_in_two_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: object, reason: str
) -> None:
    monkeypatch.setattr(
        tokenizer_files, "load_tokenizer", lambda path: Fixed([1, 2] if path.is_dir() else [1, 2, 3])
    )
    (each,) = check_loading(model(tmp_path, config))
    assert (each.rule, each.confidence) == ("token-ids-depend-on-loading", "confirmed")
    assert reason in each.message
    assert "gives 2 token ids" in each.message and "gives 3" in each.message
    monkeypatch.setattr(tokenizer_files, "load_tokenizer", lambda path: Fixed([1]))
    assert list(check_loading(str(tmp_path))) == []


def test_ways_that_cannot_be_compared_are_only_likely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> Fixed:
        raise InputError("cannot be loaded")

    monkeypatch.setattr(tokenizer_files, "load_tokenizer", fail)
    (each,) = check_loading(model(tmp_path, None))
    assert each.confidence == "likely"


def test_known_models_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_files, "load_tokenizer", lambda path: pytest.fail("loaded"))
    assert list(check_loading(model(tmp_path, {"model_type": "qwen3"}))) == []
    assert list(check_loading(str(tmp_path / "none.jinja"))) == list(check_loading("-")) == []
