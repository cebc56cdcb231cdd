"""Tiny models, one or more for each kind of state that mlx-lm keeps, made from its own classes.

Tests load this file by its path (`runpy.run_path`), since pytest imports no neighbours of a test.
"""

from pathlib import Path

import pytest
from tplaudit.probes.engine import mlx_model
from tplaudit.probes.engine.mlx_engine import MLXEngine
from tplaudit.probes.engine.mlx_model import LoadedModel
from tplaudit.probes.engine.sliding_window import drops_too_much

VOCABULARY = 512
WINDOW = 40
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
}
GROUPED = LLAMA | {"num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 4096}
QWEN3 = GROUPED | {"model_type": "qwen3", "rope_theta": 1e4, "tie_word_embeddings": True}
LINEAR = {
    "num_hidden_layers": 4,
    "full_attention_interval": 2,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
# All experts run for every token: of two that are nearly level, rounding may choose either.
EXPERTS = {
    "num_experts": 3,
    "num_experts_per_tok": 3,
    "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 64,
    "mlp_only_layers": [],
    "moe_intermediate_size": 64,
    "partial_rotary_factor": 0.5,
}
SLIDING = GROUPED | {"num_hidden_layers": 4, "sliding_window": WINDOW, "sliding_window_pattern": 2}
FALCON = GROUPED | {
    "model_type": "falcon_h1",
    "num_hidden_layers": 2,
    "mamba_d_ssm": 64,
    "mamba_d_head": 16,
    "mamba_n_heads": 4,
    "mamba_d_state": 16,
    "lm_head_multiplier": 1.0,
    "attention_in_multiplier": 4.0,
    "ssm_in_multiplier": 4.0,
}
BAICHUAN = GROUPED | {
    "model_type": "baichuan_m1",
    "num_hidden_layers": 4,
    "rope_theta": 1e4,
    "sliding_window": WINDOW,
    "sliding_window_layers": [0, 2],
    "conv_window": 2,
    "num_swa_attention_heads": 2,
    "num_swa_key_value_heads": 1,
}
LLAMA4 = {
    "model_type": "llama4",
    "text_config": GROUPED
    | {
        "model_type": "llama4_text",
        "num_hidden_layers": 4,
        "attention_bias": False,
        "attention_chunk_size": WINDOW,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 128,
        "num_experts_per_tok": 1,
        "num_local_experts": 1,
        "rope_scaling": None,
        "rope_theta": 1e4,
        "use_qk_norm": True,
    },
}
# Latent attention, and an indexer with keys of its own that says which tokens count once there are more than
# `index_topk`.
DEEPSEEK = LLAMA | {
    "model_type": "deepseek_v32",
    "num_key_value_heads": 2,
    "index_head_dim": 32,
    "index_n_heads": 2,
    "index_topk": 32,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "max_position_embeddings": 4096,
}
CONFIGS = {
    "llama": LLAMA,
    "qwen3": QWEN3,
    "kv_bits": QWEN3 | {"head_dim": 64},
    "qwen3_5": QWEN3 | LINEAR | {"model_type": "qwen3_5"},
    "qwen3_next": QWEN3 | LINEAR | EXPERTS | {"model_type": "qwen3_next"},
    "gemma3_text": SLIDING | {"model_type": "gemma3_text", "query_pre_attn_scalar": 32},
    "gemma4_text": SLIDING
    | {
        "model_type": "gemma4_text",
        "num_hidden_layers": 6,
        "global_head_dim": 64,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 16,
    },
    "gpt_oss": SLIDING
    | {
        "model_type": "gpt_oss",
        "num_local_experts": 3,
        "num_experts_per_tok": 3,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "falcon_h1": FALCON,
    "baichuan_m1": BAICHUAN,
    "deepseek_v32": DEEPSEEK,
    "llama4": LLAMA4,
}
KINDS = {
    "llama": "plain",
    "qwen3": "plain",
    "kv_bits": "quantised:8",
    "qwen3_5": "hybrid",
    "qwen3_next": "hybrid",
    "gemma3_text": f"rotating:{WINDOW}",
    "gemma4_text": f"rotating:{WINDOW}",
    "gpt_oss": f"rotating:{WINDOW}",
    "falcon_h1": "hybrid",
    "baichuan_m1": f"hybrid+rotating:{WINDOW}",
    "deepseek_v32": "plain",
    "llama4": f"chunked:{WINDOW}",
}


def config_of(name, vocabulary=VOCABULARY):
    """Return a configuration with so many token ids."""
    config = dict(CONFIGS[name])
    if "text_config" in config:
        config["text_config"] = dict(config["text_config"])
    for part in (config, config.get("text_config", {})):
        part.update({key: vocabulary for key in part if key.startswith("vocab_size")})
    return config


def build(name, vocabulary=VOCABULARY, **options):
    """Make a model from mlx-lm's own class, with random weights, and the engine that runs it."""
    blas = mlx_model.load_mlx()
    from mlx_lm.models.cache import ChunkedKVCache

    if name == "llama4" and drops_too_much(ChunkedKVCache(WINDOW)):
        pytest.skip("this mlx-lm computes other logits as the prompt is split")
    config = config_of(name, vocabulary)
    module = pytest.importorskip(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    mlx_model._randomise(model, 0)
    mlx_model._evaluate(model)
    options = ({"kv_bits": 8} if name == "kv_bits" else {}) | options
    return MLXEngine(LoadedModel(model, Path(name), blas, "float32, random"), **options)
