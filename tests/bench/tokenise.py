"""Tokenising a growing conversation: every prompt from scratch, beside the incremental encoder."""

import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REQUESTS = 300
CHARACTERS_PER_TURN = 2_350  # about 600 tokens of Python source, so that the last prompt has about 180,000
SAMPLE_EVERY = 10


def prompts(requests: int = REQUESTS) -> Iterator[str]:
    """Yield the ChatML prompts of a coding session whose tool results are the standard library's sources.

    Each prompt appends a tool call, its result and the generation prompt to the one before, except that one
    in the middle also has another system message, as when a client puts the date there.
    """
    text = "<|im_start|>system\nYou are a coding agent. Today is Monday.<|im_end|>\n"
    text += "<|im_start|>user\nRead the standard library.<|im_end|>\n"
    for turn, source in zip(range(requests), sources(), strict=False):
        if turn == requests // 2:
            text = text.replace("Monday", "Tuesday", 1)
        text += (
            f'<|im_start|>assistant\n<tool_call>\n{{"name": "read", "arguments": {{"part": {turn}}}}}\n'
            f"</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n{source}\n</tool_response><|im_end|>\n"
        )
        yield f"{text}<|im_start|>assistant\n"


def sources() -> Iterator[str]:
    """Yield stretches of the standard library's source files, in order of their names."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for start in range(0, len(source) - CHARACTERS_PER_TURN, CHARACTERS_PER_TURN):
            yield source[start : start + CHARACTERS_PER_TURN]


def run(directory: str | None = None) -> dict[str, Any]:
    """Measure both ways and compare their ids.

    Args:
        directory: a model directory; by default what `TPLAUDIT_BENCH_TOKENIZER` names.

    Returns:
        Measured seconds. The alternative is `encode` of transformers' own tokenizer; `scratch_seconds` is its
        time, measured on every tenth prompt, the fifth of each ten, and
        multiplied by ten. `ratio` counts the encoder without its self-check, `ratio_checked` with it.

    Raises:
        SystemExit: if no tokenizer is named.
    """
    import numpy as np
    from tplaudit.probes.tokenization.files import load_tokenizer_named
    from tplaudit.probes.tokenization.tokens import IncrementalEncoder
    from transformers import AutoTokenizer

    directory = directory or os.environ.get("TPLAUDIT_BENCH_TOKENIZER")
    if not directory:
        raise SystemExit("name a tokenizer directory, as an argument or in TPLAUDIT_BENCH_TOKENIZER")
    tokenizer = load_tokenizer_named(directory)
    scratch = AutoTokenizer.from_pretrained(directory)
    plain, checked = IncrementalEncoder(tokenizer, check_every=0), IncrementalEncoder(tokenizer)
    plain_seconds = checked_seconds = scratch_seconds = 0.0
    sampled = equal = 0
    for turn, prompt in enumerate(prompts()):
        # The order is against us: the model's cache of words is warmest for encoding from scratch.
        started = time.perf_counter()
        ids = plain.encode(prompt)
        plain_seconds += time.perf_counter() - started
        started = time.perf_counter()
        checked.encode(prompt)
        checked_seconds += time.perf_counter() - started
        if turn % SAMPLE_EVERY == SAMPLE_EVERY // 2 - 1:
            started = time.perf_counter()
            whole = scratch.encode(prompt, add_special_tokens=False)
            scratch_seconds += time.perf_counter() - started
            sampled += 1
            equal += np.array_equal(ids, whole)
    started = time.perf_counter()
    passed = checked.check() and plain.check()
    scratch_seconds *= SAMPLE_EVERY
    return {
        "requests": turn + 1,
        "last_prompt_tokens": len(ids),
        "last_prompt_characters": len(prompt),
        "sampled": sampled,
        "sampled_with_equal_ids": equal,
        "last_equal": passed,
        "fallback_reason": checked.fallback_reason,
        "scratch_seconds": scratch_seconds,
        "incremental_seconds": plain_seconds,
        "incremental_seconds_with_checks": checked_seconds,
        "checks": checked.checks,
        "ratio": scratch_seconds / plain_seconds,
        "ratio_checked": scratch_seconds / checked_seconds,
    }


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:2]), indent=2))
