"""Loading an mlx-lm model from a directory: what is checked first, what it computes in, and on which BLAS.

Importing this module loads neither mlx nor mlx-lm; `load` does. On Linux it first loads OpenBLAS where the
machine has it, because the wheels of `mlx[cpu]` carry the reference BLAS, which is many times slower in
float32.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError, brief

COUNT_INSTEAD = "use --engine tokens, which counts the same turns without the model"
_AGAIN = "download the file again"
Blas = Literal["openblas", "bundled", "accelerate", "metal", "cuda"]
_OPENBLAS = ("libopenblas.so.0", "libopenblasp.so.0", "libopenblaso.so.0", "libopenblas.so")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes:
        model: mlx-lm's `nn.Module`, called with token ids of shape `(1, n)` and a cache per layer.
        path: the model directory.
        blas: what multiplies matrices: `openblas`, `bundled` (the reference BLAS in mlx's own wheel),
            `accelerate`, `metal` or `cuda`.
        precision: what the weights are and what was done to them, for people.
    """

    model: Any
    path: Path
    blas: Blas
    precision: str


def load(path: str | Path, *, random_weights: bool = False, seed: int = 0) -> LoadedModel:
    """Load a model directory.

    On a CPU, floating-point weights are cast to float32, the one type that BLAS is used for; quantised models
    stay as they are. Code that comes with a model never runs.

    Args:
        path: a directory with `config.json` and, unless `random_weights`, `model*.safetensors`.
        random_weights: make the weights instead of reading them: matrices from a normal distribution whose
            variance is one over their inputs, norms one, biases zero.
        seed: of the random weights; the same seed gives the same model.

    Raises:
        InputError: there is no such model, parts of it are missing or broken, mlx-lm does not know its
            architecture, or it wants code of its own.
    """
    path = Path(path)
    _check_config(path)
    if not random_weights:
        _check_weights(path)
    try:
        blas = load_mlx()
        from mlx_lm.utils import load_model
    except Exception as error:
        raise InputError(f"mlx-lm cannot be imported ({brief(error)})", fix=COUNT_INSTEAD) from error
    try:
        model, _ = load_model(path, lazy=True, strict=not random_weights)
        if random_weights:
            _randomise(model, seed)
        precision = "float32, random" if random_weights else _to_working_precision(model)
        _evaluate(model)
    except Exception as error:
        raise InputError(
            f"mlx-lm cannot load this model ({brief(error)})",
            where=str(path),
            fix=f"check that the directory is complete, or {COUNT_INSTEAD}",
        ) from error
    return LoadedModel(model, path, blas, precision)


@functools.cache
def load_mlx() -> Blas:
    """Import mlx, on Linux with OpenBLAS where there is one, and say what multiplies its matrices.

    The dynamic linker binds mlx to a BLAS when mlx is imported: OpenBLAS has to be there before, and loading
    it later changes nothing.
    """
    preloaded = "openblas" in os.environ.get("LD_PRELOAD", "")
    if sys.platform == "linux" and not preloaded and "mlx.core" not in sys.modules:
        preloaded = _load_openblas()
    import mlx.core as mx

    darwin = sys.platform == "darwin"
    if mx.default_device() == mx.gpu:
        return "metal" if darwin else "cuda"
    if darwin:
        return "accelerate"
    return "openblas" if preloaded or _linked_to_openblas() else "bundled"


def _load_openblas() -> bool:
    """Load OpenBLAS for all libraries loaded after it, and say whether that worked."""
    for name in _OPENBLAS:
        try:
            library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if hasattr(library, "cblas_sgemm"):
            return True
    return False


def _linked_to_openblas() -> bool:
    """Whether this mlx was built against the machine's OpenBLAS instead of carrying a BLAS of its own."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return False
    loaded = {Path(line.split()[-1]) for line in maps.splitlines() if "blas" in line}
    own = any(file.parent.name.startswith("mlx") and "blas" in file.name for file in loaded)
    return not own and any(file.name.startswith("libopenblas") for file in loaded)


def _check_config(path: Path) -> None:
    """Raise InputError unless the directory has a config.json that mlx-lm may be given."""
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "there is no such model directory"
        raise InputError(what, where=str(path), fix="name a directory with config.json and weights")
    file = path / "config.json"
    if not file.is_file():
        raise InputError("the model directory has no config.json", where=str(path), fix=COUNT_INSTEAD)
    config = _read_json(file)
    # mlx-lm 0.30 and 0.31 run this file without asking.
    if config.get("model_file") is not None:
        raise InputError(
            f"the model wants to run its own Python code ({config['model_file']}), which is never done",
            where=str(file),
            fix=COUNT_INSTEAD,
        )
    if not isinstance(config.get("model_type"), str):
        raise InputError("model_type is missing", where=str(file), fix="restore the model's own config.json")


def _check_weights(path: Path) -> None:
    """Raise InputError unless all weight files of a model directory are there and whole."""
    files = sorted(path.glob("model*.safetensors"))
    index = path / "model.safetensors.index.json"
    if index.is_file():
        named = _read_json(index).get("weight_map")
        if not isinstance(named, Mapping):
            raise InputError("weight_map is missing", where=str(index), fix=_AGAIN)
        missing = sorted({str(name) for name in named.values()} - {file.name for file in files})
        if missing:
            raise InputError(
                f"{len(missing)} weight files are missing, the first is {missing[0]}",
                where=str(path),
                fix=f"download the rest of the model, or {COUNT_INSTEAD}",
            )
    if not files:
        raise InputError("there are no weights (model*.safetensors)", where=str(path), fix=COUNT_INSTEAD)
    for file in files:
        _check_safetensors(file)


def _check_safetensors(file: Path) -> None:
    """Raise InputError unless a file has the header of a safetensors file and as many bytes as it announces.

    The format: eight bytes with the header's length, the header as JSON, the tensors at the offsets it names.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            header = stream.read(length) if length <= size - 8 else None
    except OSError as error:
        raise InputError(f"cannot be read ({brief(error)})", where=str(file), fix=COUNT_INSTEAD) from error
    if start == b"version ":
        fix = "run `git lfs pull` in the directory"
        raise InputError("is a Git LFS pointer, not weights", where=str(file), fix=fix)
    if len(start) < 8 or header is None:
        raise InputError("is truncated or not a safetensors file", where=str(file), fix=_AGAIN)
    try:
        tensors = json.loads(header)
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        announced = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(f"has a broken header ({brief(error)})", where=str(file), fix=_AGAIN) from error
    if announced > size:
        raise InputError(f"is truncated: {size:,} of {announced:,} bytes", where=str(file), fix=_AGAIN)


def _read_json(file: Path) -> Mapping[str, Any]:
    """Return a JSON object from a file, or raise InputError."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"is not readable JSON ({brief(error)})", where=str(file), fix=_AGAIN) from error
    if not isinstance(value, Mapping):
        raise InputError("is not a JSON object", where=str(file), fix=_AGAIN)
    return value


def _randomise(model: Any, seed: int) -> None:
    """Replace all parameters of a model by random ones that keep activations and logits of order one.

    mlx's own initial values are so small that every prompt would get nearly the same logits.
    """
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten

    generator = np.random.default_rng(seed)
    weights = []
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for name, old in sorted(parameters.items()):
        if old.ndim > 1:
            new = generator.standard_normal(old.shape, np.float32) / np.sqrt(old.shape[-1], dtype=np.float32)
        else:
            new = np.full(old.shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
        weights.append((name, mx.array(new)))
    model.load_weights(weights)


def _to_working_precision(model: Any) -> str:
    """Cast a model's weights to what this machine computes in, and say what they are."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    types = {array.dtype for array in parameters.values()}
    floating = {kind for kind in types if mx.issubdtype(kind, mx.floating)}
    names = " and ".join(sorted(str(kind).removeprefix("mlx.core.") for kind in floating))
    if types - floating:
        return f"quantised, as stored ({names} scales)"
    if mx.default_device() == mx.gpu or floating == {mx.float32}:
        return f"{names}, as stored"
    model.set_dtype(mx.float32)
    return f"float32, cast from {names}"


def _evaluate(model: Any) -> None:
    """Read or compute all weights now, so that no prefill is charged for it."""
    import mlx.core as mx

    mx.eval(model.parameters())
    model.eval()
