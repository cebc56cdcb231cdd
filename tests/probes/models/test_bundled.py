"""The bundled models' names, wherever a model is named."""

import json
import shutil
from pathlib import Path

import pytest
from tplaudit.fixtures import BUNDLED_MODELS, DEFAULT_MODEL, transcript
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.errors import UsageError
from tplaudit.probes.gate.sources import annotated_path, is_bare, load_side
from tplaudit.probes.models.bundled import bundled_model
from tplaudit.probes.models.layers import Layers
from tplaudit.probes.models.model import load_model
from tplaudit.probes.models.template_files import load_template, model_type
from tplaudit.probes.placements.sweep import folder_members
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.omlx_reasoning import detect_preserve_thinking
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import model_info
from tplaudit.probes.transcripts.reader import open_transcript

LAYERS = {"bundled": "plain", "bundled:hybrid": "hybrid", "bundled:sliding-window": "rotating:256"}
TEXT = "{{ messages[0].content }}"


def test_names() -> None:
    assert set(LAYERS) == set(BUNDLED_MODELS)
    for name in ("bundle", "./bundled", "bundled-model", "owner/bundled", "Bundled:hybrid", ""):
        assert bundled_model(name) is None
    for name in ("bundled:", "bundled:tiny", "bundled:hybrid/", "bundled:../transcripts"):
        with pytest.raises(UsageError, match="bundled, bundled:hybrid, bundled:sliding-window"):
            bundled_model(name)


def test_no_name_is_the_first_one() -> None:
    for name in (None, "bundled"):
        model = load_model(name)
        assert (model.source, model.kind, model.template.source) == ("bundled", "bundled", "bundled")
        assert model.directory == DEFAULT_MODEL


@pytest.mark.parametrize("name", LAYERS)
def test_texts_are_shared_and_layers_differ(name: str) -> None:
    model, first = load_model(name), load_model(None)
    assert (model.source, model.kind, model.template.source) == (name, "bundled", name)
    assert (model.default_engine, model.weights, model.approximate) == ("mlx", None, False)
    assert model.template.sources["default"].text == first.template.sources["default"].text
    assert model.template.special_tokens == first.template.special_tokens
    assert [each.tokenizer.encode("ok <|im_end|>")[-1] for each in (model, first)] == [4089] * 2
    assert model.state_size.kind == LAYERS[name]
    config = json.loads((model.directory / "config.json").read_text(encoding="utf-8"))
    assert model_info(model, None).architecture == model_type(model.template) == config["model_type"]
    assert detect_preserve_thinking(model.template) is detect_preserve_thinking(first.template) is True


@pytest.mark.parametrize("name", LAYERS)
def test_a_replay_computes_what_it_counts(name: str) -> None:
    model, policies = load_model(name), [parse_policy("as-is"), parse_policy("mlx-lm")]
    engine = load_engine(model)
    assert engine.layout.bytes_per_token == model.state_size.bytes_per_token
    assert engine.layout.bytes_per_snapshot == model.state_size.bytes_per_snapshot
    reports = []
    for chosen in (engine, None):
        replay = Replay(
            open_transcript(transcript("chat")), model, policies, engine=chosen, verify=chosen is not None
        )
        turns = list(replay.turns())
        reports.append([[(turn.reused, turn.reprefill) for turn in each] for each in turns])
        report = replay.report()
    assert reports[0] == reports[1]
    assert report.cache.layers == engine.model_kind == LAYERS[name]
    assert report.model.source == name
    # Snapshots at the end of a prompt are reused, blocks of 512 or 2048 tokens are never full here.
    assert sum(turn.reused or 0 for turn in report.policies[0].turns) > 0
    assert Layers.of(LAYERS[name]).trimmable == (name == "bundled")


def test_a_template_of_ones_own_replaces_the_shared_one(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(TEXT)
    model = load_model("bundled:hybrid", template=str(tmp_path / "own.jinja"), tokenizer="characters")
    assert (model.kind, model.state_size.kind, model.approximate) == ("bundled", "hybrid", True)
    assert model.template.sources["default"].text == TEXT


def test_a_path_of_that_name_is_still_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("bundled", "bundled:hybrid", "templates"):
        shutil.copytree(DEFAULT_MODEL, folder)
        Path(folder, "chat_template.jinja").write_text(TEXT)
        path = f"./{folder}"
        model = load_model(path)
        assert (model.kind, model.source) == ("directory", path)
        assert model.template.sources["default"].text == TEXT
        assert load_template(path).sources["default"].text == TEXT
        assert load_template(Path(path)).sources["default"].text == TEXT
    # The name alone is the bundled model's, whatever else is there.
    assert load_model("bundled").kind == "bundled"
    assert load_template("bundled").sources["default"].text != TEXT


def test_a_folder_of_that_name_is_no_folder_of_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bundled").mkdir()
    Path("bundled", "one.jinja").write_text(TEXT)
    assert folder_members("bundled") is None
    assert folder_members("./bundled") == ("bundled/one.jinja",)


def test_a_side_of_a_gate() -> None:
    side = load_side("bundled:sliding-window")
    assert side.source == "bundled:sliding-window"
    assert not is_bare("bundled:sliding-window")
    assert annotated_path("bundled:sliding-window") is None
