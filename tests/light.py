"""What works without the extra mlx: each command there, and the same JSON as here.

    python tests/light.py PYTHON

runs the commands with PYTHON, of an environment that has no more than `pip install .` brings, and with the
interpreter that runs this script, which has the extra. Prints what differs; ends with 1 where anything does.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"
TINY = FIXTURES / "models" / "tiny"
CHAT = FIXTURES / "transcripts" / "chat.jsonl"
SESSION = FIXTURES / "transcripts" / "claude-code.jsonl"
IN_PLACE = FIXTURES / "templates" / "in-place.jinja"
#: Modules that only the extra brings.
EXTRA = ("mlx", "mlx_lm", "transformers")

#: Commands whose output is the same with and without the extra. llama.cpp's engine is another extra.
SAME: list[tuple[object, ...]] = [
    ("probe", TINY, "--json", "--fail-on", "never"),
    ("thinking", TINY, "--json", "--fail-on", "never"),
    ("render", CHAT, "--model", TINY, "--json"),
    (
        "gate",
        "--no-llamacpp",
        "--base",
        FIXTURES / "gate" / "strict.jinja",
        "--head",
        FIXTURES / "gate" / "in-place.jinja",
        "--json",
    ),
    ("replay", SESSION, "--engine", "tokens", "--json"),
    ("replay", CHAT, "--engine", "tokens", "--model", TINY, "--template", IN_PLACE, "--json"),
    (
        "replay",
        CHAT,
        "--engine",
        "tokens",
        "--tokenizer",
        TINY / "tokenizer.json",
        "--policy",
        "vllm",
        "--json",
    ),
]
INSTALL = "install tplaudit with its extra: tplaudit[mlx]"
#: Commands that need the extra, and what they say without it.
NEEDS_EXTRA: list[tuple[tuple[object, ...], str]] = [
    (("replay", CHAT, "--engine", "mlx"), "--engine mlx"),
    (("replay", CHAT, "--verify"), "--verify"),
    (("calibrate",), "calibrate"),
]


def run(python: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of tplaudit outside the checkout, which Python would otherwise import from."""
    return subprocess.run(
        [python, "-P", "-m", "tplaudit", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "TPLAUDIT_CACHE_DIR": os.devnull},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def absent(python: str) -> list[str]:
    """Return what is installed and should not be."""
    code = (
        "import importlib.util, json; "
        f"print(json.dumps([each for each in {EXTRA!r} if importlib.util.find_spec(each)]))"
    )
    done = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, check=True)
    return [f"{name} is installed" for name in json.loads(done.stdout)]


def compared(python: str, folder: Path) -> list[str]:
    """Return the commands that differ from those of this interpreter."""
    wrong = []
    for arguments in SAME:
        started = time.monotonic()
        ours, theirs = (run(each, *arguments, folder=folder) for each in (python, sys.executable))
        name = " ".join(map(str, arguments))
        if ours.returncode == 2 or (ours.returncode, ours.stdout) != (theirs.returncode, theirs.stdout):
            wrong.append(f"{name}: another result ({ours.returncode}, {theirs.returncode}) {ours.stderr}")
        print(f"{time.monotonic() - started:5.1f} s  {name}")
    return wrong


def refused(python: str, folder: Path) -> list[str]:
    """Return the commands that do not say in one sentence what to install."""
    wrong = []
    for arguments, where in NEEDS_EXTRA:
        done = run(python, *arguments, folder=folder)
        said = f"tplaudit: {where}: a model runs with mlx-lm, which is not installed; {INSTALL}\n"
        if (done.returncode, done.stdout, done.stderr) != (2, "", said):
            wrong.append(f"{' '.join(map(str, arguments))}: {done.returncode} {done.stderr}")
    return wrong


def counted(python: str, folder: Path) -> list[str]:
    """Return what is wrong with a replay that names no engine: it counts, and says so on stderr."""
    default = run(python, "replay", CHAT, "--json", folder=folder)
    tokens = run(python, "replay", CHAT, "--engine", "tokens", "--json", folder=folder)
    right = default.returncode == 0 and default.stdout == tokens.stdout
    right = right and default.stderr.startswith("note: mlx-lm is not installed, so tokens are only counted; ")
    return [] if right else [f"replay without --engine: {default.returncode} {default.stderr}"]


def locked(python: str, folder: Path) -> list[str]:
    """Return what is wrong with a lock that is written, checked, and fails after a change."""
    template = folder / "chat_template.jinja"
    shutil.copy(FIXTURES / "gate" / "strict.jinja", template)
    written = run(python, "lock", template, folder=folder)
    kept = run(python, "lock", template, "--check", folder=folder)
    shutil.copy(FIXTURES / "gate" / "breaks-tools.jinja", template)
    broken = run(python, "lock", template, "--check", folder=folder)
    codes = (written.returncode, kept.returncode, broken.returncode)
    return [] if codes == (0, 0, 1) else [f"lock: {codes} {written.stderr}{kept.stderr}{broken.stderr}"]


def sentencepiece(python: str, folder: Path) -> list[str]:
    """Return what is wrong with a directory that only transformers can load."""
    directory = folder / "sentencepiece"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (directory / "tokenizer.model").write_bytes(b"\x0a")
    shutil.copy(IN_PLACE, directory / "chat_template.jinja")
    done = run(python, "replay", CHAT, "--model", directory, folder=folder)
    right = done.returncode == 2 and done.stderr.count("\n") == 1 and INSTALL in done.stderr
    return [] if right else [f"sentencepiece: {done.returncode} {done.stderr}"]


def main() -> None:
    """Run all of it with the interpreter that is named."""
    (python,) = sys.argv[1:]
    python = str(Path(python).absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = [*absent(python), *compared(python, folder), *refused(python, folder)]
        wrong += [*counted(python, folder), *locked(python, folder), *sentencepiece(python, folder)]
    for each in wrong:
        print(f"tests/light.py: {each}", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
