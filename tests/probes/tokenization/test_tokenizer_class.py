"""The tables of classes, against those of the installed transformers."""

from typing import Any

import pytest
from tplaudit.probes.tokenization.files import quiet_transformers
from tplaudit.probes.tokenization.tokenizer_class import (
    MISNAMED_TYPES,
    MISTRAL_TYPES,
    OWN_CLASSES,
    PLAIN,
    PLAIN_TYPES,
    UNREGISTERED_TYPES,
    is_known_type,
    tokenizer_class,
)


@pytest.fixture(scope="module")
def auto() -> Any:
    with quiet_transformers():
        from transformers.models.auto import tokenization_auto
    return tokenization_auto


def test_the_tables_are_those_of_transformers(auto: Any) -> None:
    registered = {
        model_type: (name or "").removesuffix("Fast")
        for model_type, name in auto.TOKENIZER_MAPPING_NAMES.items()
    }
    plain = {model_type for model_type, name in registered.items() if name == PLAIN} - MISTRAL_TYPES
    assert plain == PLAIN_TYPES
    assert {registered[each] for each in MISTRAL_TYPES} <= {PLAIN, "MistralCommonBackend"}
    assert {each: registered[each] for each in OWN_CLASSES} == dict(OWN_CLASSES)
    known = {"Qwen2Tokenizer", "Qwen3_5Tokenizer", "LlamaTokenizer", "GemmaTokenizer"}
    assert {model_type for model_type, name in registered.items() if name in known} <= set(OWN_CLASSES)
    misnamed = auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS - PLAIN_TYPES
    assert misnamed == MISNAMED_TYPES
    assert UNREGISTERED_TYPES.isdisjoint(registered)
    assert set(auto.CONFIG_MAPPING_NAMES) >= UNREGISTERED_TYPES


@pytest.mark.parametrize(
    ("model_type", "named", "byte_level", "expected"),
    [
        ("qwen3", "Qwen2TokenizerFast", True, "Qwen2Tokenizer"),
        ("qwen2", "PreTrainedTokenizerFast", True, "Qwen2Tokenizer"),
        ("qwen3", "PreTrainedTokenizerFast", True, PLAIN),
        ("glm4_moe", "Qwen2Tokenizer", True, PLAIN),
        ("llama", "LlamaTokenizerFast", True, PLAIN),
        ("llama", "LlamaTokenizerFast", False, "LlamaTokenizer"),
        ("mistral", "LlamaTokenizer", False, PLAIN),
        ("gpt_oss", None, True, PLAIN),
        ("gemma3", None, False, "GemmaTokenizer"),
        ("bert", "BertTokenizer", False, "BertTokenizer"),
        ("bert", None, False, None),
    ],
)
def test_the_class(model_type: str, named: str | None, byte_level: bool, expected: str | None) -> None:
    settings = {} if named is None else {"tokenizer_class": named}
    assert tokenizer_class({"model_type": model_type}, settings, byte_level=byte_level) == expected


def test_code_of_a_repository_and_missing_files() -> None:
    assert tokenizer_class({"model_type": "llama"}, {"auto_map": {}}, byte_level=True) is None
    assert tokenizer_class(None, {}, byte_level=True) == PLAIN
    assert tokenizer_class(None, {"tokenizer_class": "GemmaTokenizer"}, byte_level=True) == "GemmaTokenizer"
    config = {"model_type": "llama", "tokenizer_class": "Qwen2Tokenizer"}
    assert tokenizer_class(config, {}, byte_level=True) == "Qwen2Tokenizer"


def test_what_is_known() -> None:
    assert all(map(is_known_type, ("qwen3", "glm4_moe", "mistral", "deepseek_v3")))
    assert not is_known_type("no-such-model")
