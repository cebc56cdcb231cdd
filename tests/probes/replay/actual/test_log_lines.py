"""What is read of each server's log, from lines of ours in its format."""

from __future__ import annotations

import pytest
from tplaudit.probes.replay.actual.log_lines import LogEntry, read_lines

TIME = "2026-11-02 10:00:00,123"

#: For each kind of lines: a log, and what it says.
LOGS = {
    "progress of prefills": (
        f"""
{TIME} - INFO - Starting httpd at 127.0.0.1 on port 8080...
{TIME} - INFO - Prompt processing progress: 0/700
{TIME} - INFO - Prompt processing progress: 512/700
{TIME} - INFO - Prompt processing progress: 700/700
{TIME} - INFO - Prompt processing progress: 1/1
{TIME} - INFO - Prompt processing progress: 1/1
""",
        [
            LogEntry((3, 4, 5), prefilled=700),
            LogEntry((6,), prefilled=1),
            LogEntry((7,), prefilled=1),
        ],
    ),
    "two prefills at a time": (
        f"""
{TIME} - INFO - Prompt processing progress: 512/900
{TIME} - INFO - Prompt processing progress: 20/20
{TIME} - INFO - Prompt processing progress: 900/900
""",
        [LogEntry((2, 4), prefilled=900), LogEntry((3,), prefilled=20)],
    ),
    "lookup alone": (
        """
INFO:vllm_mlx.scheduler:[cache_fetch] request=3f1a-1 MISS prompt_tokens=900 time=0.001s
INFO:vllm_mlx.scheduler:[cache_fetch] request=3f1a-2 HIT prompt_tokens=950 cached=900 remaining=50 time=0.002s
INFO:vllm_mlx.scheduler:[cache_store] request=3f1a-2 tokens=960 (950 prompt + 10 output) stored=True
""",
        [LogEntry((2,), 900, 0), LogEntry((3,), 950, 900)],
    ),
    "what runs counts more than the lookup": (
        """
INFO:rapid_mlx.scheduler:[cache_fetch] request=a HIT prompt_tokens=950 cached=950 remaining=0 time=0.002s
INFO:rapid_mlx.scheduler:[cache_fetch] request=b HIT prompt_tokens=80 cached=64 remaining=16 time=0.002s
INFO:rapid_mlx.scheduler:[schedule] request=a uid=4 prompt_tokens=950 tokens_to_prefill=1, 949 cached (full)
""",
        [LogEntry((2, 4), 950, 949, 1), LogEntry((3,), 80, 64)],
    ),
    "snapshot of a system prefix": (
        "\nSystem KV cache HIT (stream_chat): reusing 1200 tokens, prefilling 34 new (hash=1f2e3d)\n",
        [LogEntry((2,), 1234, 1200, 34)],
    ),
    "end of a prefill": (
        f"\n{TIME} - INFO - Prefill completed: request=9ab prompt_tokens=500 cached_tokens=480 "
        "elapsed=0.1s rate=200.0 tok/s\n",
        [LogEntry((2,), 500, 480)],
    ),
    "warning of a large prefill, and its answer": (
        f"""
{TIME} - omlx.cache - WARNING - prefix mismatch: re-prefills 3000 of 5048 tokens (reused 2048)
{TIME} - omlx.server - INFO - Chat completion: 12 tokens in 1.5s (8.0 tok/s), prompt: 5048, finish_reason=stop
{TIME} - omlx.server - INFO - Chat completion: 9 tokens in 0.5s (18.0 tok/s), prompt: 5100, finish_reason=stop
""",
        [LogEntry((2, 3), 5048, 2048, 3000), LogEntry((4,), 5100)],
    ),
    "timings in a table": (
        """
slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.9 (> 0.1 thold)
slot print_timing: id  0 | task 7 |
prompt eval time =      50.00 ms /    12 tokens (    4.17 ms per token,   240.00 tokens per second)
       eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second)
      total time =     150.00 ms /    22 tokens
slot      release: id  0 | task 7 | stop processing: n_tokens = 121, truncated = 0
slot print_timing: id  0 | task 7 |
prompt eval time =      50.00 ms /     1 tokens (    4.17 ms per token,   240.00 tokens per second)
""",
        [LogEntry((4, 5, 7), 112, 100, 12), LogEntry((9,), prefilled=1)],
    ),
    "timings a line each, and the length at the start": (
        """
slot update_slots: id  1 | task 9 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 64
slot print_timing: id  1 | task 9 | prompt eval time =      50.00 ms /     4 tokens (    4.17 ms per token)
slot print_timing: id  1 | task 9 |        eval time =     100.00 ms /    10 tokens (   10.00 ms per token)
slot      release: id  1 | task 9 | stop processing: n_tokens = 73, truncated = 0
""",
        [LogEntry((2, 3, 4, 5), 64, 60, 4)],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_what_lines_say(name: str) -> None:
    text, entries = LOGS[name]
    assert list(read_lines(enumerate(text.splitlines(), 1))) == entries


def test_other_lines_say_nothing() -> None:
    lines = ["", "INFO: 127.0.0.1 - POST /v1/chat/completions 200", "progress: 3/4", "x" * 100_000]
    assert read_lines(enumerate(lines, 1)) == ()


def test_only_what_computes_or_reuses_says_reuse() -> None:
    assert LogEntry((1,), reused=0).says_reuse
    assert LogEntry((1,), prefilled=3).says_reuse
    assert not LogEntry((1,), prompt_tokens=3).says_reuse
