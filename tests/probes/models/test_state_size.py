"""Bytes per token, told from a configuration."""

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.models.state_size import StateSize, kv_bytes_per_token, state_size

LLAMA = {"num_hidden_layers": 3, "num_attention_heads": 8, "hidden_size": 64}


@pytest.mark.parametrize(
    ("config", "itemsize", "expected"),
    [
        (LLAMA, 4, 2 * 3 * 8 * 8 * 4),
        (LLAMA, 2, 2 * 3 * 8 * 8 * 2),
        (LLAMA | {"num_key_value_heads": 2}, 4, 2 * 3 * 2 * 8 * 4),
        (LLAMA | {"num_key_value_heads": 2, "head_dim": 128}, 4, 2 * 3 * 2 * 128 * 4),
        ({"text_config": LLAMA, "hidden_size": 4096}, 4, 2 * 3 * 8 * 8 * 4),
        (LLAMA | {"layer_types": ["full_attention"] * 3}, 4, 2 * 3 * 8 * 8 * 4),
        (LLAMA | {"layer_types": ["full_attention", "sliding_attention"]}, 4, None),
        (LLAMA | {"kv_lora_rank": 512}, 4, None),
        ({"num_hidden_layers": 3}, 4, None),
        (LLAMA | {"num_attention_heads": 0}, 4, None),
        ({}, 4, None),
    ],
)
def test_from_a_config(config, itemsize, expected):
    assert kv_bytes_per_token(config, itemsize) == expected


WINDOW = LLAMA | {"sliding_window": 100, "num_hidden_layers": 8}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, "plain"),
        ({"model_type": ["llama"]}, "plain"),
        ({"model_type": "mamba2"}, "recurrent"),
        ({"model_type": "jamba"}, "hybrid"),
        ({"text_config": {"model_type": "qwen3_5_text"}}, "hybrid"),
        ({"model_type": "other", "layer_types": ["linear_attention", "full_attention"]}, "hybrid"),
        # Families that do not read the key.
        (WINDOW | {"model_type": "qwen2"}, "plain"),
        (WINDOW | {"model_type": "mistral"}, "plain"),
        (WINDOW | {"model_type": "llama"}, "plain"),
        (WINDOW | {"model_type": "llama", "layer_types": ["full_attention"] * 8}, "plain"),
        (WINDOW | {"model_type": "llama", "layer_types": ["sliding_attention"] * 8}, "rotating:100"),
        (WINDOW | {"model_type": "step3p5"}, "rotating:100"),
        (WINDOW | {"model_type": "laguna"}, "plain"),
        (WINDOW | {"model_type": "laguna", "layer_types": ["sliding_attention"] * 8}, "rotating:100"),
        (LLAMA | {"model_type": "iquestloopcoder"}, "rotating:64"),
        (LLAMA | {"model_type": "iquestloopcoder", "loop_window_size": 32}, "rotating:32"),
        (LLAMA | {"model_type": "gemma3_text", "sliding_window": None}, "plain"),
    ],
)
def test_kinds(config, kind):
    assert state_size(config).kind == kind


def test_windows_are_counted_by_pattern():
    one = 2 * 8 * 8 * 4
    assert state_size(WINDOW | {"model_type": "exaone4", "sliding_window_pattern": "LLLG"}) == StateSize(
        "rotating:100", Sizes(2 * one, ((100, 6 * one),))
    )
    assert state_size(WINDOW | {"model_type": "gemma3_text"}) == StateSize(
        "rotating:100", Sizes(one, ((100, 7 * one),))
    )
    # How many of its layers have a window is not known without `layer_types`.
    assert state_size(WINDOW | {"model_type": "step3p5"}) == StateSize("rotating:100")
    # Both times that a layer runs it keeps something.
    assert state_size(LLAMA | {"model_type": "iquestloopcoder"}) == StateSize("rotating:64")


@pytest.mark.parametrize("key", ["sparse_attention_config", "index_head_dim"])
def test_an_indexers_keys_are_not_counted(key):
    assert kv_bytes_per_token(LLAMA | {key: {"sparse_index_dim": 32}}) is None


LINEAR = LLAMA | {
    "model_type": "qwen3_5",
    **dict.fromkeys(("linear_num_value_heads", "linear_num_key_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16),
}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LLAMA | {"layer_types": 5}, "layer_types is not a list"),
        (LLAMA | {"layer_types": [{}]}, "layer_types is not a list of names"),
        ({"text_config": LLAMA | {"layer_types": 7}}, "layer_types is not a list"),
        (WINDOW | {"model_type": "laguna", "layer_types": "sliding"}, "layer_types is not a list"),
        (WINDOW | {"sliding_window_layers": 5}, "sliding_window_layers is not a list"),
        (WINDOW | {"model_type": "gemma3_text", "sliding_window": True}, "sliding_window is not a whole"),
        (WINDOW | {"model_type": "gemma3_text", "sliding_window": -1}, "sliding_window is not a whole"),
        (LINEAR | {"full_attention_interval": "x"}, "full_attention_interval is not a whole"),
        (LINEAR | {"linear_conv_kernel_dim": "x"}, "linear_conv_kernel_dim is not a whole"),
        ({"model_type": "iquestloopcoder", "loop_window_size": "x"}, "loop_window_size is not a whole"),
        (
            {"model_type": "llama4_text", "attention_chunk_size": []},
            "attention_chunk_size is not a whole number",
        ),
    ],
)
def test_what_cannot_be_read_is_named(config, said):
    with pytest.raises(InputError) as caught:
        state_size(config, where="tiny/config.json")
    assert str(caught.value).startswith(f"tiny/config.json: {said}")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (LLAMA | {"num_hidden_layers": True}, "plain"),
        (LLAMA | {"num_attention_heads": "8"}, "plain"),
        (LLAMA | {"num_key_value_heads": -1}, "plain"),
        (LINEAR | {"linear_key_head_dim": True}, "hybrid"),
        (WINDOW | {"model_type": "gemma3_text", "head_dim": "x"}, "rotating:100"),
    ],
)
def test_sizes_that_the_config_does_not_tell_are_unknown(config, kind):
    assert state_size(config) == StateSize(kind)


@pytest.mark.parametrize("value", [None, False, 0])
def test_a_window_may_be_switched_off(value):
    config = WINDOW | {"model_type": "gemma3_text", "sliding_window": value}
    assert state_size(config).kind == "plain"


def test_a_family_that_reads_no_window_may_have_anything_there():
    assert state_size(WINDOW | {"model_type": "mistral", "sliding_window": True}).kind == "plain"


def test_vllms_block_of_a_hybrid_model():
    # Qwen3.5 4B, as vLLM 0.33.0 logs it.
    config = {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 32,
        "hidden_size": 2560,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "mamba_ssm_dtype": "float32",
    }
    assert state_size({"text_config": config}).aligned_block == 528
    assert state_size(config | {"mamba_ssm_dtype": None}).aligned_block == 272
    assert state_size(LLAMA).aligned_block is None
