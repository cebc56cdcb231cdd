"""What a token costs in a cache's memory, from a model's config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kv_bytes_per_token(config: Mapping[str, Any], itemsize: int = 4) -> int | None:
    """Return the bytes of K and V that one token occupies over all layers of plain attention.

    Args:
        config: a parsed config.json; of a multimodal one, its `text_config` counts.
        itemsize: bytes per number; 4 for float32, which is what is computed in on a CPU.

    Returns:
        Predicted bytes, or None where the config does not describe plain attention in every layer: latent
        attention (`kv_lora_rank`), sliding windows and linear attention keep something else.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = text
    kinds = config.get("layer_types") or []
    if config.get("kv_lora_rank") or not all(kind == "full_attention" for kind in kinds):
        return None
    layers = config.get("num_hidden_layers")
    heads = config.get("num_attention_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim")
    if width is None:
        hidden = config.get("hidden_size")
        width = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None
    if not (isinstance(layers, int) and isinstance(kv_heads, int) and isinstance(width, int)):
        return None
    return 2 * layers * kv_heads * width * itemsize
