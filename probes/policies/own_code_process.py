"""The process that a person's own policy runs in: `python own_code_process.py FILE FUNCTION OPTIONS`.

It imports the file, and answers each line of its input, a JSON object, with a line of output. What the
function prints goes to stderr. It has nothing of tplaudit but this file, so that any interpreter can run it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class TemplateError(Exception):
    """The template raised; `kind` is the name of its error's class."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Template:
    """What the function is given for a template: its source, and a way to render it.

    It can stand where a server's code expects a tokenizer.

    Attributes:
        chat_template: the template's source.
    """

    def __init__(self, source: str, channel: _Channel) -> None:
        self.chat_template = source
        self._channel = channel

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = False,
        **kwargs: Any,
    ) -> str:
        """Return the prompt. Raises TemplateError where the template does, ValueError for `tokenize`."""
        if tokenize:
            raise ValueError("there is no tokenizer here: call apply_chat_template with tokenize=False")
        asked = {
            "messages": conversation,
            "tools": tools,
            "kwargs": kwargs,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
        }
        answer = self._channel.ask({"render": asked})
        if "error" in answer:
            raise TemplateError(answer["error"], answer["kind"])
        prompt: str = answer["prompt"]
        return prompt

    render = apply_chat_template


class _Channel:
    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def ask(self, value: Mapping[str, Any]) -> dict[str, Any]:
        self.write(value)
        return self.read()

    def write(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value)  # as a whole first: what is no JSON must not leave half a line behind
        print(text, file=self._out, flush=True)

    def read(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            raise SystemExit
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """Answer requests until the input ends."""
    file, name, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    channel = _Channel(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    try:
        function = getattr(_imported(file), name, None)
        if not callable(function):
            raise ValueError(f"it has no function {name}")
    except BaseException as error:  # whatever the file does when it is imported
        channel.write(_error(error))
        return
    channel.write({"ready": True})
    while True:
        asked = channel.read()
        try:
            made = function(asked["body"], asked["route"], Template(asked["template"], channel), **options)
            channel.write(_checked(made, asked["body"]))
        except SystemExit:
            raise
        except Exception as error:  # whatever the function raises is its answer
            channel.write(_error(error))


def _imported(file: Path) -> Any:
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _checked(made: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the function returned, as an answer. Raises TypeError where it has another form."""
    if isinstance(made, list):
        made = (made, body.get("tools"), body.get("chat_template_kwargs"))
    if not isinstance(made, tuple) or len(made) != 3:
        raise TypeError("the function returns neither a list of messages nor (messages, tools, kwargs)")
    messages, tools, kwargs = made
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    ):
        raise TypeError("its messages are no list of objects with a role")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise TypeError("its tools are no list of objects")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError("its kwargs are no object")
    return {"messages": messages, "tools": tools, "kwargs": kwargs or {}}


def _error(error: BaseException) -> dict[str, Any]:
    kind = error.kind if isinstance(error, TemplateError) else type(error).__name__
    return {"error": str(error) or kind, "kind": kind}


if __name__ == "__main__":
    main()
