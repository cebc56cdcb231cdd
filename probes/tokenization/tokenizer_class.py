"""Which class of transformers loads a model directory's tokenizer, told without importing transformers.

Source: `AutoTokenizer.from_pretrained` of huggingface/transformers 5.24 (models/auto/tokenization_auto.py).
It chooses by `model_type` of config.json and `tokenizer_class` of tokenizer_config.json. Most classes take
tokenizer.json as it is; some keep its vocabulary only and set up the rest themselves, which can change ids.
Tests compare the tables below with those of the installed transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Takes tokenizer.json as it is.
PLAIN = "TokenizersBackend"
#: What names that class, or has no class of its own.
_PLAIN_NAMES = frozenset({PLAIN, "PythonBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast"})

#: Types whose tokenizer.json is taken as it is, whatever class the directory names.
PLAIN_TYPES = frozenset(
    """
    EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5
    ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2
    gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax
    hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava llava_next
    mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 modernbert
    modernbert-decoder molmo molmo2 nemo_speechlm nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid omniasr
    opencua openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe pix2struct pocket_tts smolvlm stablelm
    step3_vl umt5 vipllava xlm-roberta-xl
    """.split()
)
#: The same, but for directories with a tekken.json where mistral-common is installed.
MISTRAL_TYPES = frozenset(
    """
    ministral ministral3 mistral mistral3 mistral_large4 mixtral pixtral voxtral voxtral_realtime
    """.split()
)
_QWEN2_TYPES = """
    audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr
    moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl
    qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice
    """.split()
_QWEN3_5_TYPES = ["qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen4_exp"]
_GEMMA_TYPES = """
    diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 t5gemma
    zaya
    """.split()
#: Types with a class of their own, as far as that class is known here.
OWN_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(_QWEN2_TYPES, "Qwen2Tokenizer"),
    **dict.fromkeys(_QWEN3_5_TYPES, "Qwen3_5Tokenizer"),
    **dict.fromkeys(_GEMMA_TYPES, "GemmaTokenizer"),
    "hyperclovax_vision_v2": "GPT2Tokenizer",
    "idefics": "LlamaTokenizer",
    "idefics2": "LlamaTokenizer",
    "siglip2": "Siglip2Tokenizer",
}
#: Types whose own class is used although their directories name another one.
MISNAMED_TYPES = frozenset(
    "hyperclovax_vision_v2 qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2".split()
)
#: Types without a class of their own that language models have; where nothing names one, the file is taken.
UNREGISTERED_TYPES = frozenset(
    """
    apertus arcee bamba bitnet cohere2_moe cwm deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4
    dots1 exaone exaone4 exaone_moe falcon falcon_h1 gemma4 gemma4_text glm_moe_dsa gpt_oss granite_swa helium
    hunyuan_v1_dense hunyuan_v1_moe hy_v3 jetmoe laguna lfm2 lfm2_moe llama llama4 llama4_text
    longcat_flash minimax minimax_m3_vl mistral4 nanochat nemotron_h paligemma phi4_multimodal sarvam_moe
    seed_oss smollm3 solar_open step3p5 youtu zamba zamba2
    """.split()
)


def is_known_type(model_type: str) -> bool:
    """Tell whether a `model_type` is one of those whose class is known here."""
    known = (PLAIN_TYPES, MISTRAL_TYPES, OWN_CLASSES, UNREGISTERED_TYPES)
    return any(model_type in types for types in known)


def tokenizer_class(
    config: Mapping[str, Any] | None, tokenizer_config: Mapping[str, Any], *, byte_level: bool
) -> str | None:
    """Return the class that loads a directory with a tokenizer.json, without its ending `Fast`.

    Args:
        config: what config.json says; None where there is none.
        tokenizer_config: what tokenizer_config.json says; empty where there is none.
        byte_level: whether tokenizer.json has a ByteLevel component.

    Returns:
        `PLAIN` where the file is taken as it is; None where transformers alone can tell.
    """
    if "auto_map" in tokenizer_config:  # a class out of the repository may be meant
        return None
    model_type = _text(config or {}, "model_type")
    named = _text(tokenizer_config, "tokenizer_class") or _text(config or {}, "tokenizer_class")
    named = PLAIN if named in _PLAIN_NAMES else named.removesuffix("Fast")
    own = _own_class(model_type)
    if not named:
        return own or (PLAIN if not model_type or model_type in UNREGISTERED_TYPES else None)
    if own == PLAIN or model_type in MISNAMED_TYPES:
        return own
    if named == "LlamaTokenizer" and byte_level:  # that class would split a text in another way
        return PLAIN
    return named


def _own_class(model_type: str) -> str | None:
    if model_type in PLAIN_TYPES or model_type in MISTRAL_TYPES:
        return PLAIN
    return OWN_CLASSES.get(model_type)


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""
