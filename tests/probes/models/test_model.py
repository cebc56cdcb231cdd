"""What a replay runs on."""

import json
from dataclasses import replace
from pathlib import Path

from tplaudit.fixtures import DEFAULT_MODEL
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.models.model import load_model


def test_the_bundled_model_runs_for_real_by_default() -> None:
    model = load_model(None)
    assert (model.kind, model.source, model.default_engine) == ("bundled", "bundled", "mlx")
    assert load_engine(model).model_kind == "plain"


def test_a_sliding_window_model_runs_too(tmp_path: Path) -> None:
    config = {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 4096,
        "sliding_window": 64,
        "sliding_window_pattern": 2,
        "rms_norm_eps": 1e-6,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = replace(load_model(None), directory=tmp_path)
    assert load_engine(model).model_kind == "rotating:64"


def test_a_directory_without_weights_is_counted() -> None:
    model = load_model(str(DEFAULT_MODEL))
    assert (model.kind, model.default_engine) == ("directory", "tokens")
