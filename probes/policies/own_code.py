"""A policy that is a function of a person's own: `--policy-code FILE::FUNCTION[:OPTION=VALUE,…]`.

The function gets a request's body, the route and a template, and returns what the server's template would
get: messages, tools and chat-template kwargs. It runs in a process of its own (`own_code_process`); the
template stays behind its own boundary: where the function renders, this process does it.
docs/own-code.md describes it for people.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..conversation import Request
from ..errors import RenderError, UsageError
from ..templates.template import ChatTemplate
from .api.routes import route_of
from .base import Prepared
from .rewrite.matching import actions_of, matched
from .rewrite.reasoning import template_text

#: How the name of such a policy begins.
PREFIX = "code:"
FLAG = "--policy-code"
_PROCESS = Path(__file__).with_name("own_code_process.py")
#: The longest that a function may be silent, in seconds.
_MOST_SECONDS = 120.0
_FORM = "FILE::FUNCTION or FILE::FUNCTION:OPTION=VALUE,…"


@dataclass(frozen=True, slots=True)
class CodeSpec:
    """What `--policy-code` names.

    Attributes:
        file: the file with the function.
        function: its name.
        options: what it is given as keyword arguments.
        cache: the policy whose server's cache applies, as `--policy` takes it; None for the default.
        python: the interpreter that runs it; None for this one.
    """

    file: Path
    function: str
    options: Mapping[str, str]
    cache: str | None
    python: str | None = None


def read_code_spec(name: str) -> CodeSpec | None:
    """Return what the name of a policy says of a person's own code; None for any other policy.

    Raises:
        UsageError: it names no file or no function, or an option has no value.
    """
    if not name.startswith(PREFIX):
        return None
    file, separator, rest = name.removeprefix(PREFIX).rpartition("::")
    function, colon, given = rest.partition(":")
    if not separator or not file or not function.isidentifier():
        raise UsageError(f"{name.removeprefix(PREFIX)!r} names no function", where=FLAG, fix=f"write {_FORM}")
    options: dict[str, str] = {}
    for item in given.split(",") if colon else ():
        option, equals, value = item.partition("=")
        if not equals or not option.isidentifier():
            raise UsageError(f"{item!r} is no option", where=FLAG, fix=f"write {_FORM}")
        options[option] = value
    cache, python = options.pop("cache", None), options.pop("python", None)
    return CodeSpec(Path(file), function, options, cache, python)


def body_of(request: Request) -> dict[str, Any]:
    """Return a request's body as the client sent it, but for fields that no template sees."""
    body: dict[str, Any] = dict(request.fields)
    messages = [dict(message.data) for message in request.messages]
    if request.dialect == "openai-responses":
        body["input"] = messages
        given = {"instructions": request.system}
    else:
        body["messages"] = messages
        given = {"system": request.system}
    tools = None if request.tools is None else [dict(tool) for tool in request.tools]
    given |= {"tools": tools, "chat_template_kwargs": dict(request.kwargs) or None}
    if request.partial:
        body["continue_final_message"] = True
    return body | {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class OwnCode:
    """The policy.

    Attributes:
        name: the policy as the person named it.
        spec: what that says.
    """

    name: str
    spec: CodeSpec
    _process: _Process = field(repr=False, compare=False)

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return what the function makes of a request, or with the error that it raised."""
        asked = {
            "body": body_of(request),
            "route": route_of(None, request),
            "template": template_text(template),
        }
        try:
            answer = self._process.ask(asked, template)
        except _Failed as failed:
            return Prepared(request, error=RenderError(failed.kind, failed.message))
        messages = matched(request, answer["messages"])
        tools = None if answer["tools"] is None else tuple(answer["tools"])
        kwargs = {key: value for key, value in answer["kwargs"].items() if key != "continue_final_message"}
        made = Request(
            messages,
            tools,
            kwargs,
            request.now,
            bool(answer["kwargs"].get("continue_final_message")),
            request.reply,
            request.where,
            fields=request.fields,
            sent=request.sent,
        )
        why = f"as {self.spec.function} of {self.spec.file.name} has it"
        return Prepared(made, actions_of(request, messages, why))


def own_policy(name: str) -> OwnCode | None:
    """Return the policy of a person's own code that a name stands for; None for any other name.

    Raises:
        UsageError: the name is wrong, or the file has no such function.
    """
    spec = read_code_spec(name)
    return None if spec is None else OwnCode(name, spec, _Process(spec))


class _Failed(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class _Process:
    """The process that the function runs in; it ends with this one, whose end closes its input."""

    def __init__(self, spec: CodeSpec) -> None:
        self._spec = spec
        self._process = self._start()
        weakref.finalize(self, _end, self._process)
        try:
            self._read()
        except _Failed as failed:
            _end(self._process)
            fix = "mend the file, or name the interpreter that has what it imports by python=PATH"
            raise UsageError(f"{spec.file}: {failed.message}", where=FLAG, fix=fix) from None

    def ask(self, asked: Mapping[str, Any], template: ChatTemplate) -> dict[str, Any]:
        """Return what the function returns; it may render meanwhile. Raises _Failed where it fails."""
        try:
            self._send(asked)
            while True:
                answer = self._read()
                if "render" not in answer:
                    return answer
                self._send(_rendered(answer["render"], template))
        except KeyboardInterrupt:
            _end(self._process)
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        spec = self._spec
        if not spec.file.is_file():
            raise UsageError(f"there is no file {str(spec.file)!r}", where=FLAG, fix=f"write {_FORM}")
        command = [spec.python or sys.executable, str(_PROCESS), str(spec.file), spec.function]
        try:
            return subprocess.Popen(
                [*command, json.dumps(spec.options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the other
            )
        except OSError as error:
            what = f"{command[0]} does not start ({error.strerror})"
            raise UsageError(what, where=FLAG, fix="name a Python interpreter by python=PATH") from None

    def _send(self, value: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise _Failed("PolicyCode", "its process has ended") from None

    def _read(self) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        poll = select.poll()
        poll.register(out, select.POLLIN | select.POLLHUP)
        line = b""
        while not line.endswith(b"\n"):
            if not poll.poll(1000 * _MOST_SECONDS):
                _end(self._process)
                raise _Failed("PolicyCode", f"it gave no answer for {_MOST_SECONDS:g} s")
            data = os.read(out.fileno(), 1 << 20)
            if not data:
                raise _Failed("PolicyCode", "its process has ended")
            line += data
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _Failed(answer["kind"], answer["error"])
        return answer


def _rendered(asked: Mapping[str, Any], template: ChatTemplate) -> dict[str, Any]:
    """Render for the function: what it asked for, as a prompt or as the template's error."""
    try:
        prompt = template.render(
            asked["messages"],
            tools=asked["tools"],
            kwargs=asked["kwargs"],
            add_generation_prompt=asked["add_generation_prompt"],
            continue_final_message=asked["continue_final_message"],
        )
    except RenderError as error:
        return {"error": error.message, "kind": error.kind}
    return {"prompt": prompt}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
