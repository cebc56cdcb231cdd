"""Models named by hub id: found in a stand-in cache directory, without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from types import MappingProxyType

import huggingface_hub
import pytest
from huggingface_hub import constants, errors
from tplaudit.probes.errors import InputError
from tplaudit.probes.hub import is_hub_id, snapshot
from tplaudit.probes.mlx_engine import MLXEngine

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": 64,
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, offline."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def add(cache, name, files, listed=()):
    """Put a model into the cache as a download would; `listed` are files of it that did not arrive."""
    folder = cache / f"models--{name.replace('/', '--')}"
    directory = folder / "snapshots" / COMMIT
    directory.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    for file, text in files.items():
        (directory / file).write_bytes(text)
    if listed:
        from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache

        entry = TreeCacheEntry(size=1, blob_id="0" * 40, lfs_sha256=None, lfs_size=None, xet_hash=None)
        write_tree_cache(str(folder), COMMIT, dict.fromkeys([*files, *listed], entry))
    return directory


@pytest.mark.parametrize("name", ["mlx-community/Qwen3-0.6B-4bit", "gpt2", "a/b", "Org_1/model.v2"])
def test_names_that_can_be_ids(name):
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name",
    [
        *("./a", "/models/a", "../a/b", "a/b/c", "~/a", "-", "template.jinja", "org/config.json", "a--b/c"),
        *("a/b-", "a/b..c", "a./b", "a b/c", "", "a/", "ä/b", "a/" + "b" * 95, "model.gguf"),
    ],
)
def test_names_that_cannot(name):
    assert not is_hub_id(name)


def test_a_folder_is_itself_before_it_is_an_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_id("owner/model")
    (tmp_path / "owner" / "model").mkdir(parents=True)
    assert not is_hub_id("owner/model")


def test_a_model_in_the_cache_is_loaded_from_there(cache, tmp_path_factory):
    import mlx.core as mx
    from mlx.utils import tree_flatten

    made = tmp_path_factory.mktemp("made")
    (made / "config.json").write_text(json.dumps(LLAMA))
    model = MLXEngine.load(made, random_weights=True)._model
    mx.save_safetensors(str(made / "model.safetensors"), dict(tree_flatten(model.parameters())))
    directory = add(cache, "owner/tiny", {file.name: file.read_bytes() for file in made.iterdir()})
    assert snapshot("owner/tiny") == snapshot("owner/tiny", weights=False) == directory
    assert MLXEngine.load(snapshot("owner/tiny")).bytes_per_token == 2 * 2 * 32 * 4


def test_a_model_without_weights_serves_for_counting_only(cache):
    directory = add(cache, "owner/texts", {"config.json": b"{}", "tokenizer.json": b"{}"})
    assert snapshot("owner/texts", weights=False) == directory
    with pytest.raises(InputError, match=r"no weights .* in the cache; .*hf download owner/texts"):
        snapshot("owner/texts")


def test_a_model_that_is_not_there(cache):
    with pytest.raises(InputError, match=r"^owner/none: .*HF_HUB_OFFLINE.*not in the cache .*") as caught:
        snapshot("owner/none")
    assert str(cache) in str(caught.value) and "\n" not in str(caught.value)
    assert "in part" not in str(caught.value)


@pytest.mark.skipif(
    not hasattr(errors, "IncompleteSnapshotError"), reason="this huggingface_hub does not tell"
)
def test_a_model_that_is_there_in_part(cache):
    add(cache, "owner/part", {"config.json": b"{}"}, listed=["model.safetensors", "code.py"])
    with pytest.raises(InputError, match="in part only"):
        snapshot("owner/part")
    assert snapshot("owner/part", weights=False).name == COMMIT


class Response:
    """What an error of the hub carries."""

    headers = MappingProxyType({})
    request = None
    status_code = 401


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (lambda: errors.GatedRepoError("gated", response=Response()), "is gated; accept its terms"),
        (
            lambda: errors.RepositoryNotFoundError("404", response=Response()),
            "no such public model on the hub",
        ),
        (lambda: errors.HFValidationError("bad"), "no such public model"),
        (lambda: errors.LocalEntryNotFoundError("no route\nto host"), "the hub cannot be reached"),
        (lambda: OSError("disk\nfull"), r"cannot be downloaded \(OSError: disk full\)"),
    ],
)
def test_what_the_hub_answers_is_one_sentence(tmp_path, monkeypatch, error, said):
    def download(name, allow_patterns):
        assert "*.py" not in allow_patterns
        raise error()

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(InputError, match=said) as caught:
        snapshot("owner/model")
    assert caught.value.where == "owner/model" and "\n" not in str(caught.value)


def test_importing_it_loads_nothing_heavy():
    code = "import sys, tplaudit.probes.hub; print('huggingface_hub' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
