"""What a model's layers keep, and what it costs in a cache's memory, from its config.json alone.

The rules follow the classes of mlx-lm 0.32 (`mlx_lm/models`), whose caches are the reference in our tests: a
key that they do not read, such as `sliding_window` of a plain `mistral`, changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Families whose layers are all recurrent, and those that have attention besides.
_RECURRENT = frozenset({"mamba", "mamba2", "rwkv7"})
_HYBRID = frozenset(
    {
        *("bailing_hybrid", "bailing_moe_linear", "bailing_moe_v3", "falcon_h1", "gear", "granitemoehybrid"),
        *("jamba", "kimi_k3", "kimi_linear", "lfm2", "lfm2-vl", "lfm2_moe", "nemotron_h", "olmo_hybrid"),
        *("plamo2", "qwen3_5", "qwen3_5_moe", "qwen3_next", "recurrent_gemma"),
    }
)
#: Families with sliding windows, and how many layers there are to one without, unless the config tells; 0
#: where that is not known.
_SLIDING = {
    **dict.fromkeys(("cohere2", "exaone4", "olmo3"), 4),
    **dict.fromkeys(("gemma3n", "gemma4", "gemma4_text"), 5),
    **dict.fromkeys(("gemma3", "gemma3_text"), 6),
    "gpt_oss": 2,
    **dict.fromkeys(("afmoe", "exaone_moe", "gear", "mellum", "mimo_v2_flash"), 0),
    **dict.fromkeys(("muse_glimmer", "muse_spark", "plamo2", "plamo3", "recurrent_gemma", "step3p5"), 0),
    "spark2_5": 0,
}
#: Families with a window only where `layer_types` says so.
_NAMED = frozenset({"laguna", "llama", "ministral3", "mistral3"})
#: What such a layer keeps of its own, besides K and V of plain attention.
_OTHER = (
    *("kv_lora_rank", "num_kv_shared_layers", "global_head_dim", "num_swa_key_value_heads"),
    *("index_head_dim", "sparse_attention_config"),
)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a model keeps of a prompt (predicted).

    Attributes:
        kind: what its layers keep, as `Layers.of` reads it.
        bytes_per_token: of K and V over all layers of full attention; None where the config does not tell.
        bytes_per_snapshot: of what cannot be cut, at one position behind the first window; None likewise.
    """

    kind: str = "plain"
    bytes_per_token: int | None = None
    bytes_per_snapshot: int | None = 0


def footprint(config: Mapping[str, Any], itemsize: int = 4) -> Footprint:
    """Return what the layers of a model keep, and its bytes.

    Args:
        config: a parsed config.json; of a multimodal one, its `text_config` counts.
        itemsize: bytes per number; 4 for float32, which is what is computed in on a CPU.
    """
    text = _text(config)
    window, sliding = _windows(text)
    recurrent = _recurrence(text)
    kinds = [*([recurrent] if recurrent else []), *([f"rotating:{window}"] if window else [])]
    chunk = text.get("attention_chunk_size")
    if str(text.get("model_type", "")).startswith("llama4") and _positive(chunk):
        kinds.append(f"chunked:{chunk}")
    if not kinds:
        return Footprint("plain", kv_bytes_per_token(config, itemsize))
    kind = "+".join(kinds)
    layers, one = text.get("num_hidden_layers"), _layer_bytes(text, itemsize)
    linear = _linear(text, itemsize)
    if kind == f"rotating:{window}" and one is not None and isinstance(layers, int) and 0 < sliding <= layers:
        return Footprint(kind, (layers - sliding) * one, sliding * window * one)
    if kind == "hybrid" and one is not None and linear is not None:
        attention, state = linear
        return Footprint(kind, attention * one, state)
    return Footprint(kind, None, None)


def kv_bytes_per_token(config: Mapping[str, Any], itemsize: int = 4) -> int | None:
    """Return the bytes of K and V that one token occupies over all layers of plain attention.

    Args:
        config: a parsed config.json; of a multimodal one, its `text_config` counts.
        itemsize: bytes per number; 4 for float32, which is what is computed in on a CPU.

    Returns:
        Predicted bytes, or None where the config does not describe plain attention in every layer: latent
        attention (`kv_lora_rank`), sliding windows and linear attention keep something else.
    """
    config = _text(config)
    kinds = config.get("layer_types") or []
    if config.get("kv_lora_rank") or not all(kind == "full_attention" for kind in kinds):
        return None
    layers = config.get("num_hidden_layers")
    one = _layer_bytes(config, itemsize)
    return layers * one if isinstance(layers, int) and one is not None else None


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def _layer_bytes(config: Mapping[str, Any], itemsize: int) -> int | None:
    """Return the bytes of one token's K and V in one layer of plain attention."""
    if any(config.get(key) for key in _OTHER):
        return None
    heads = config.get("num_attention_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim")
    if width is None:
        hidden = config.get("hidden_size")
        width = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None
    return 2 * kv_heads * width * itemsize if isinstance(kv_heads, int) and isinstance(width, int) else None


def _windows(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the size of the sliding windows and the number of layers that have one; zeros for none.

    Where the number is not known, it is 0 beside a size.
    """
    name = config.get("model_type")
    if name == "iquestloopcoder":  # every layer runs twice, and the second time it has a window besides
        return config.get("loop_window_size") or 64, 0
    window, layers = config.get("sliding_window"), config.get("num_hidden_layers")
    if not isinstance(window, int) or not isinstance(layers, int) or window < 1:
        return 0, 0
    if named := config.get("sliding_window_layers"):  # Baichuan-M1
        return window, len(named)
    if name not in _SLIDING and name not in _NAMED:
        return 0, 0
    pattern = config.get("sliding_window_pattern")
    sliding = 0
    if kinds := config.get("layer_types"):
        sliding = list(kinds).count("sliding_attention")
        return (window, sliding) if sliding else (0, 0)
    if name in _NAMED:
        return 0, 0
    if isinstance(pattern, str) and pattern:  # EXAONE 4: L is a window, G is not
        sliding = sum(pattern[at % len(pattern)] == "L" for at in range(layers))
    else:
        every = pattern if _positive(pattern) else _SLIDING[str(name)]
        sliding = layers - layers // every if every else 0
    return window, sliding


def _recurrence(config: Mapping[str, Any]) -> str | None:
    """Return `recurrent`, `hybrid`, or None where no layer keeps one running state."""
    name = str(config.get("model_type", ""))
    if name in _RECURRENT:
        return "recurrent"
    kinds = set(config.get("layer_types") or ())
    running = kinds & {"linear_attention", "mamba", "conv", "recurrent"}
    return "hybrid" if name.removesuffix("_text") in _HYBRID or running or config.get("conv_window") else None


def _linear(config: Mapping[str, Any], itemsize: int) -> tuple[int, int] | None:
    """Return the number of full-attention layers of a GatedDeltaNet model and the bytes of its running state.

    A layer keeps the last inputs of its convolution and, in float32, one matrix for each value head.
    """
    names = ("linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim")
    values, keys, key_width, value_width = (config.get(name) for name in names)
    layers = config.get("num_hidden_layers")
    if not all(map(_positive, (layers, values, keys, key_width, value_width))):
        return None
    assert isinstance(layers, int) and isinstance(values, int) and isinstance(keys, int)
    assert isinstance(key_width, int) and isinstance(value_width, int)
    kinds = config.get("layer_types")
    every = config.get("full_attention_interval") or 4
    attention = list(kinds).count("full_attention") if kinds else layers // every
    channels = 2 * keys * key_width + values * value_width
    kernel = config.get("linear_conv_kernel_dim") or 4
    state = (kernel - 1) * channels * itemsize + values * key_width * value_width * 4
    return attention, (layers - attention) * state


def _positive(value: Any) -> bool:
    return isinstance(value, int) and value > 0
