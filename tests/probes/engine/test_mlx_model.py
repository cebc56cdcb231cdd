"""Model directories: what is read, what it is computed in, and broken ones named in one sentence."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tplaudit.probes.engine import mlx_model
from tplaudit.probes.engine.mlx_engine import MLXEngine
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.state_size import kv_bytes_per_token

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
VOCABULARY, LLAMA = TINY["VOCABULARY"], TINY["LLAMA"]


def write_config(directory: Path, config: dict) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def random_ids(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length, dtype=np.int32)


@pytest.fixture
def llama(tmp_path):
    return MLXEngine.load(write_config(tmp_path / "random", LLAMA), random_weights=True)


def test_random_weights_depend_on_the_seed_alone(tmp_path):
    path, ids = write_config(tmp_path / "m", LLAMA), random_ids(20)
    first, same, other = (
        MLXEngine.load(path, random_weights=True, seed=seed).prefill(ids).logits for seed in (0, 0, 1)
    )
    assert np.array_equal(first, same)
    assert abs(first - other).max() > 0.1
    assert 0.3 < first.std() < 3


# Model directories with weights, and what can be wrong with them.


def save(directory, config, dtype="float32", bits=None):
    """Write a model directory with random weights; returns its path."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten

    model = MLXEngine.load(write_config(directory, config), random_weights=True)._model
    if bits:
        nn.quantize(model, group_size=64, bits=bits)
        write_config(directory, config | {"quantization": {"group_size": 64, "bits": bits}})
    model.set_dtype(getattr(mx, dtype))
    mx.save_safetensors(str(directory / "model.safetensors"), dict(tree_flatten(model.parameters())))
    return directory


@pytest.fixture
def complete(tmp_path):
    return save(tmp_path / "model", LLAMA)


def test_weights_are_read_from_the_directory(complete, llama):
    engine, ids = MLXEngine.load(complete), random_ids(40)
    assert engine.precision == "float32, as stored"
    assert np.array_equal(engine.prefill(ids).logits, llama.prefill(ids).logits)


@pytest.mark.skipif(sys.platform == "darwin", reason="the cast is made where a CPU computes")
def test_half_precision_is_cast_and_quantised_weights_are_not(tmp_path):
    half = MLXEngine.load(save(tmp_path / "half", LLAMA, "bfloat16"))
    assert half.precision == "float32, cast from bfloat16"
    assert half.bytes_per_token == kv_bytes_per_token(LLAMA)
    quantised = MLXEngine.load(save(tmp_path / "quantised", LLAMA, bits=4))
    assert quantised.precision == "quantised, as stored (float32 scales)"
    ids = random_ids(200)
    blocks = quantised.prefill(ids[:150], block_size=16).payloads
    warm = quantised.prefill(ids, blocks, 144, block_size=16)
    assert quantised.verify(ids, warm.logits).passed


def shard(directory, keep=2):
    """Split the weights into two files with an index and keep the first `keep` of them."""
    import mlx.core as mx

    weights = sorted(mx.load(str(directory / "model.safetensors")).items())
    (directory / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    parts = [dict(weights[:5]), dict(weights[5:])]
    for name, part in list(zip(names, parts, strict=True))[:keep]:
        mx.save_safetensors(str(directory / name), part)
    index = {"weight_map": {key: name for name, part in zip(names, parts, strict=True) for key in part}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_sharded_weights_are_read(complete, llama):
    shard(complete)
    ids = random_ids(40)
    assert np.array_equal(MLXEngine.load(complete).prefill(ids).logits, llama.prefill(ids).logits)


def cut(directory, size):
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])


def garble_header(directory):
    (directory / "model.safetensors").write_bytes((4).to_bytes(8, "little") + b"{{{{" + b"\0" * 99)


def drop_tensor(directory):
    import mlx.core as mx

    weights = dict(mx.load(str(directory / "model.safetensors")))
    weights.pop("model.norm.weight")
    mx.eval(list(weights.values()))
    mx.save_safetensors(str(directory / "other.safetensors"), weights)
    (directory / "other.safetensors").replace(directory / "model.safetensors")


LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
MISTAKES = {
    "no_directory": (lambda d: d.rename(d.with_name("away")), "no such model directory", "model"),
    "no_config": (lambda d: (d / "config.json").unlink(), "no config.json", "model"),
    "broken_config": (lambda d: (d / "config.json").write_text("{"), "not readable JSON", "config.json"),
    "binary_config": (
        lambda d: (d / "config.json").write_bytes(b"\xff\xfe\0"),
        "not readable",
        "config.json",
    ),
    "deep_config": (lambda d: (d / "config.json").write_text("[" * 100_000), "not readable", "config.json"),
    "list_config": (lambda d: (d / "config.json").write_text("[]"), "not a JSON object", "config.json"),
    "no_model_type": (lambda d: write_config(d, {}), "model_type is missing", "config.json"),
    "unknown_type": (
        lambda d: write_config(d, LLAMA | {"model_type": "gpt5"}),
        "Model type gpt5 not supported",
        "model",
    ),
    "not_a_model": (
        lambda d: write_config(d, LLAMA | {"model_type": "cache"}),
        "cannot load this model",
        "model",
    ),
    "missing_field": (lambda d: write_config(d, {"model_type": "llama"}), "hidden_size", "model"),
    "wrong_field": (lambda d: write_config(d, LLAMA | {"hidden_size": "64"}), "cannot load this", "model"),
    "other_shape": (
        lambda d: write_config(d, LLAMA | {"hidden_size": 128}),
        "cannot load this model",
        "model",
    ),
    "custom_code": (
        lambda d: write_config(d, LLAMA | {"model_file": "evil.py"}),
        "own Python code",
        "config.json",
    ),
    "no_weights": (lambda d: (d / "model.safetensors").unlink(), "no weights", "model"),
    "half_the_shards": (lambda d: shard(d, 1), "1 weight files are missing.*00002-of-00002", "model"),
    "broken_index": (
        lambda d: (d / "model.safetensors.index.json").write_text("{}"),
        "weight_map",
        "model.safetensors.index.json",
    ),
    "empty_file": (lambda d: cut(d, 0), "is truncated", "model.safetensors"),
    "cut_header": (lambda d: cut(d, 50), "is truncated", "model.safetensors"),
    "cut_weights": (lambda d: cut(d, 90_000), r"is truncated: 90,000 of [\d,]+ bytes", "model.safetensors"),
    "a_directory": (
        lambda d: [(d / "model.safetensors").unlink(), (d / "model.safetensors").mkdir()],
        "cannot be read",
        "model.safetensors",
    ),
    "lfs_pointer": (
        lambda d: (d / "model.safetensors").write_text(LFS_POINTER),
        "Git LFS pointer",
        "model.safetensors",
    ),
    "broken_header": (garble_header, "broken header", "model.safetensors"),
    "missing_tensor": (drop_tensor, r"Missing 1 parameters.*model\.norm\.weight", "model"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_broken_model_is_one_sentence(complete, mistake):
    spoil, said, file = MISTAKES[mistake]
    (complete / "evil.py").write_text("raise SystemExit('the model ran code')")
    spoil(complete)
    with pytest.raises(InputError, match=said) as caught:
        MLXEngine.load(complete)
    assert Path(caught.value.where).name == file
    assert caught.value.fix
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_file_is_no_model_directory(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match="is not a directory"):
        MLXEngine.load(tmp_path / "model.gguf")


# The machine.


def python(code, **environment):
    """Run code in a fresh interpreter and return its output."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"} | environment
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_importing_the_module_loads_nothing_heavy():
    loaded = python("import sys, tplaudit.probes.engine.mlx_engine; print(*sys.modules)").split()
    assert not {"mlx", "mlx_lm", "transformers", "numpy"} & set(loaded)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a choice")
def test_the_blas_that_runs_is_the_one_that_is_named():
    # Times one product: the reference BLAS is far slower than OpenBLAS on the same machine.
    measure = """
import time, mlx.core as mx
def product():
    a = mx.random.normal((1024, 1024)); mx.eval(a)
    started = time.perf_counter(); mx.eval(a @ a); return time.perf_counter() - started
product()
print(load_mlx(), min(product() for _ in range(5)))
"""
    use = "from tplaudit.probes.engine.mlx_model import load_mlx\n"
    blas, seconds = python(f"{use}load_mlx()\n{measure}").split()
    late_blas, late_seconds = python(f"import mlx.core\n{use}{measure}").split()
    assert late_blas in ("bundled", "openblas") and blas in ("bundled", "openblas")
    if blas != late_blas:
        assert (blas, late_blas) == ("openblas", "bundled")
        assert float(seconds) < 0.5 * float(late_seconds)
    assert mlx_model.load_mlx() in ("bundled", "openblas")
    assert mlx_model._load_openblas() == (blas == "openblas")
