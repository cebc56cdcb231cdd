import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tplaudit.cli.output import json_text

COMMAND = [sys.executable, "-m", "tplaudit.cli.app"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("arguments", [["--help"], ["rules"], ["rules", "--json"]])
def test_a_full_disk(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"tplaudit: output: no space left on device\n"


def test_stdout_is_closed() -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m tplaudit.cli.app rules >&-'], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"tplaudit: stdout is closed; send it to a file or to /dev/null\n"


@pytest.mark.parametrize(
    "document",
    [{}, [], {"a": [], "b": {}, "c": [1e16, 1e-7, -0.0], "d": {"ü\u2028": None}}, ["\ud83d", {"x": [True]}]],
)
def test_json_is_indented_as_python_does_it(document: Any) -> None:
    assert json_text(document) == json.dumps(document, indent=2, ensure_ascii=False) + "\n"
