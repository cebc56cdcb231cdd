"""Every cache on real states: what it takes over of a prompt can be put back, and gives cold logits."""

import json

import numpy as np
import pytest
from tplaudit.probes.caches.base import PromptBoundaries
from tplaudit.probes.caches.registry import make_cache, names
from tplaudit.probes.engine.mlx_engine import MLXEngine
from tplaudit.probes.errors import UsageError

VOCABULARY = 512
CONFIG = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
}
MODELS = {
    "plain": {"model_type": "llama"},
    "rotating:40": {"model_type": "gemma3_text", "sliding_window": 40, "sliding_window_pattern": 2},
    "hybrid": {
        "model_type": "qwen3_5",
        "full_attention_interval": 2,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    },
}
# What a request keeps of the first two prompts, and how much it adds.
TURNS = [(200, 0), (200, 60), (150, 40), (260, 30), (230, 20)]


def random_ids(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length, dtype=np.int32)


@pytest.fixture(scope="module", params=MODELS)
def engine(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    (directory / "config.json").write_text(json.dumps(CONFIG | MODELS[request.param]))
    engine = MLXEngine.load(directory, random_weights=True)
    assert engine.model_kind == request.param
    return engine


def made(name, engine):
    """Return a cache, with small blocks where it has any; None where it does not take such a model."""
    options = {"model_kind": engine.model_kind, "sizes": engine.layout.sizes}
    for size in (16, None):
        try:
            return make_cache(name, block_size=size, **options)
        except UsageError:
            continue
    return None


@pytest.mark.parametrize("name", names())
def test_what_a_cache_takes_over_can_be_put_back(engine, name):
    cache = made(name, engine)
    if cache is None:
        # These store blocks that can be cut anywhere.
        assert engine.model_kind != "plain" and name in ("rapid-mlx:paged", "vllm-mlx:paged")
        return
    base, reuse = random_ids(200), 0
    for number, (kept, new) in enumerate(TURNS):
        ids = np.concatenate([base[:kept], random_ids(new, number)])
        base = ids if number == 1 else base
        last = len(ids) - 20
        marks = PromptBoundaries(
            generation_prompt=len(ids) - 3, turn_end=last, user_headers=(90, last), system_prefix=60
        )
        match = cache.match(ids, marks)
        with cache.pin(match):
            blocks = [block.payload for block in match.blocks]
            prefill = engine.prefill(ids, blocks, match.reused, spans=cache.spans(ids, match, marks))
            cache.store(ids, prefill.payloads, match=match, marks=marks)
        if match.reused:
            assert engine.verify(ids, prefill.logits).passed
        reuse += match.reused
    # vllm-mlx's simple engine keeps nothing of models with sliding windows.
    assert reuse or (name == "vllm-mlx" and engine.model_kind.startswith("rotating"))
