"""Bytes per token, told from a configuration."""

from __future__ import annotations

import pytest
from tplaudit.probes.caches.footprint import kv_bytes_per_token

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
