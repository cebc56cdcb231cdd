"""What keeping a prefix in blocks costs, beside prefilling it cold, in one run of a tiny model."""

import json
import tempfile
from pathlib import Path
from typing import Any

CONFIG = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-6,
    "vocab_size": 512,
}


def run(tokens: int = 8192, block_size: int = 256) -> dict[str, Any]:
    """Prefill a prompt cold, store its blocks, restore them for a longer prompt, and return measured seconds.

    Args:
        tokens: length of the prefix.
        block_size: tokens per block.

    Returns:
        Seconds of each step, and `share`: storing and restoring together as a part of the cold prefill.
    """
    import numpy as np
    from tplaudit.probes.caches.paged import PagedCache
    from tplaudit.probes.engine.mlx_engine import MLXEngine

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(CONFIG))
        engine = MLXEngine.load(directory, random_weights=True)
    ids = np.random.default_rng(0).integers(0, CONFIG["vocab_size"], tokens + 64, dtype=np.int32)
    cache = PagedCache(block_size)
    cold = engine.prefill(ids[:tokens], block_size=block_size)
    cache.store(ids[:tokens], cold.payloads)
    match = cache.match(ids)
    warm = engine.prefill(ids, [block.payload for block in match.blocks], match.reused, block_size=block_size)
    return {
        "model": "llama, 4 layers, width 128, 4 heads, float32, random weights",
        "blas": engine.blas,
        "tokens": tokens,
        "block_size": block_size,
        "reused": match.reused,
        "cold_seconds": cold.seconds,
        "store_seconds": cold.store_seconds,
        "restore_seconds": warm.restore_seconds,
        "share": (cold.store_seconds + warm.restore_seconds) / cold.seconds,
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
