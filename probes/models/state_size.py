"""What a model's layers keep, and what it costs in a cache's memory, from its config.json alone.

The rules follow the classes of mlx-lm 0.32 (`mlx_lm/models`), whose caches are the reference in our tests: a
key that they do not read, such as `sliding_window` of a plain `mistral`, changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .sizes import Sizes

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
class StateSize:
    """What a model keeps of a prompt (predicted).

    Attributes:
        kind: what its layers keep, as `Layers.of` reads it.
        sizes: of its state; None where the config does not tell.
        aligned_block: tokens of the smallest block of a multiple of 16 tokens whose K and V, in one layer of
            full attention, occupy no less than the state of one recurrent layer, in 16-bit numbers; None
            where there is no such layer, or the config does not tell.
    """

    kind: str = "plain"
    sizes: Sizes | None = None
    aligned_block: int | None = None

    @property
    def bytes_per_token(self) -> int | None:
        """Bytes of K and V over all layers of full attention; None where the config does not tell."""
        return self.sizes.bytes_per_token if self.sizes else None

    @property
    def bytes_per_snapshot(self) -> int | None:
        """Bytes of what cannot be cut, at one position beyond the first window; None likewise."""
        return self.sizes.bytes_per_snapshot if self.sizes else None


def state_size(config: Mapping[str, Any], itemsize: int = 4, where: str = "config.json") -> StateSize:
    """Return what the layers of a model keep, and its bytes.

    Args:
        config: a parsed config.json; of a multimodal one, its `text_config` counts.
        itemsize: bytes per number; 4 for float32, which is what is computed in on a CPU.
        where: the file, for errors.

    Raises:
        InputError: something else stands where a model of this family has a number or a list.
    """
    text = _Config(_text(config), where)
    window, sliding = _windows(text)
    recurrent = _recurrence(text)
    kinds = [*([recurrent] if recurrent else []), *([f"rotating:{window}"] if window else [])]
    if text.family.startswith("llama4") and (chunk := text.number("attention_chunk_size")):
        kinds.append(f"chunked:{chunk}")
    if not kinds:
        plain = kv_bytes_per_token(config, itemsize, where)
        return StateSize("plain", None if plain is None else Sizes(plain))
    kind = "+".join(kinds)
    layers, one = _count(text.get("num_hidden_layers")), _layer_bytes(text, itemsize)
    if kind == f"rotating:{window}" and one and layers and 0 < sliding <= layers:
        return StateSize(kind, Sizes((layers - sliding) * one, ((window, sliding * one),)))
    if kind == "hybrid" and one and (linear := _linear(text, itemsize)):
        attention, state = linear
        return StateSize(kind, Sizes(attention * one, recurrent_bytes=state), _aligned_block(text))
    return StateSize(kind)


def kv_bytes_per_token(
    config: Mapping[str, Any], itemsize: int = 4, where: str = "config.json"
) -> int | None:
    """Return the bytes of K and V that one token occupies over all layers of plain attention.

    Args:
        config: a parsed config.json; of a multimodal one, its `text_config` counts.
        itemsize: bytes per number; 4 for float32, which is what is computed in on a CPU.
        where: the file, for errors.

    Returns:
        Predicted bytes, or None where the config does not describe plain attention in every layer: latent
        attention (`kv_lora_rank`), sliding windows and linear attention keep something else.

    Raises:
        InputError: `layer_types` is no list of names.
    """
    text = _Config(_text(config), where)
    if text.get("kv_lora_rank") or not all(kind == "full_attention" for kind in text.layer_types):
        return None
    layers = _count(text.get("num_hidden_layers"))
    one = _layer_bytes(text, itemsize)
    return layers * one if layers and one else None


@dataclass(frozen=True, slots=True)
class _Config:
    """A config.json, and what it says under keys that decide which kinds of layers there are."""

    values: Mapping[str, Any]
    where: str

    def get(self, key: str) -> Any:
        return self.values.get(key)

    @property
    def family(self) -> str:
        return str(self.get("model_type") or "")

    @property
    def layer_types(self) -> list[str]:
        """The name of each layer's kind; empty where the config has none."""
        kinds = self.listed("layer_types")
        if not all(isinstance(kind, str) for kind in kinds):
            raise self._error("layer_types is not a list of names")
        return kinds

    def listed(self, key: str) -> list[Any]:
        """Return a list; an empty one where there is none."""
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise self._error(f"{key} is not a list")
        return value or []

    def number(self, key: str) -> int | None:
        """Return a number above 0; None where the key is missing, null, false or 0."""
        value = self.get(key)
        if not value and isinstance(value, int | None):
            return None
        if (number := _count(value)) is None:
            raise self._error(f"{key} is not a whole number above 0")
        return number

    def _error(self, what: str) -> InputError:
        return InputError(what, where=self.where, fix="restore the model's own config.json")


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def _layer_bytes(config: _Config, itemsize: int) -> int | None:
    """Return the bytes of one token's K and V in one layer of plain attention."""
    if any(config.get(key) for key in _OTHER):
        return None
    heads = _count(config.get("num_attention_heads"))
    kv_heads = _count(config.get("num_key_value_heads") or heads)
    width = _count(config.get("head_dim"))
    if config.get("head_dim") is None:
        hidden = _count(config.get("hidden_size"))
        width = hidden // heads if hidden and heads else None
    return 2 * kv_heads * width * itemsize if kv_heads and width else None


def _windows(config: _Config) -> tuple[int, int]:
    """Return the size of the sliding windows and the number of layers that have one; zeros for none.

    Where the number is not known, it is 0 beside a size.
    """
    name = config.family
    if name == "iquestloopcoder":  # every layer runs twice, and the second time it has a window besides
        return config.number("loop_window_size") or 64, 0
    named = config.listed("sliding_window_layers")  # Baichuan-M1
    if not named and name not in _SLIDING and name not in _NAMED:
        return 0, 0
    window, layers = config.number("sliding_window"), _count(config.get("num_hidden_layers"))
    if window is None or layers is None:
        return 0, 0
    if named:
        return window, len(named)
    if kinds := config.layer_types:
        sliding = kinds.count("sliding_attention")
        return (window, sliding) if sliding else (0, 0)
    if name in _NAMED:
        return 0, 0
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # EXAONE 4: L is a window, G is not
        return window, sum(pattern[at % len(pattern)] == "L" for at in range(layers))
    every = _count(pattern) or _SLIDING[name]
    return window, layers - layers // every if every else 0


def _recurrence(config: _Config) -> str | None:
    """Return `recurrent`, `hybrid`, or None where no layer keeps one running state."""
    name = config.family
    if name in _RECURRENT:
        return "recurrent"
    running = {"linear_attention", "mamba", "conv", "recurrent"}.intersection(config.layer_types)
    return "hybrid" if name.removesuffix("_text") in _HYBRID or running or config.get("conv_window") else None


def _linear(config: _Config, itemsize: int) -> tuple[int, int] | None:
    """Return the number of full-attention layers of a GatedDeltaNet model and the bytes of its running state.

    A layer keeps the last inputs of its convolution and, in float32, one matrix for each value head.
    """
    names = ("linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim")
    values, keys, key_width, value_width = (_count(config.get(name)) for name in names)
    layers = _count(config.get("num_hidden_layers"))
    if not (layers and values and keys and key_width and value_width):
        return None
    kinds = config.layer_types
    every = config.number("full_attention_interval") or 4
    attention = kinds.count("full_attention") if kinds else layers // every
    return attention, (layers - attention) * _linear_layer(config, itemsize, 4)


def _linear_layer(config: _Config, itemsize: int, state_itemsize: int) -> int:
    """Return the bytes of one GatedDeltaNet layer's running state, of a model that `_linear` knows."""
    names = ("linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim")
    values, keys, key_width, value_width = (_count(config.get(name)) or 0 for name in names)
    channels = 2 * keys * key_width + values * value_width
    kernel = config.number("linear_conv_kernel_dim") or 4
    return (kernel - 1) * channels * itemsize + values * key_width * value_width * state_itemsize


def _aligned_block(config: _Config) -> int | None:
    """Return vLLM's block size for a GatedDeltaNet model.

    Source: vllm-project/vllm 0.33.0, `_align_hybrid_block_size` of `vllm/platforms/interface.py`; what the
    matrices are kept in is `mamba_ssm_dtype`, or the model's own 16-bit numbers.
    """
    one = _layer_bytes(config, 2)
    if not one:
        return None
    state = _linear_layer(config, 2, 4 if config.get("mamba_ssm_dtype") == "float32" else 2)
    return 16 * -(-state // (16 * one))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
