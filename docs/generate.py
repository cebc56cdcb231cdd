"""Regenerates what is generated in README.md and docs/: real output, option tables, the JSON schemas.

    python docs/generate.py           rewrite what is stale, and name the files
    python docs/generate.py --check   only name them, and exit with 1 where there are any

A generated part stands between two comments, of which the first says what it is:

    <!-- run: COMMAND -->      COMMAND and what it prints, run by sh in the repository's root
    <!-- options: COMMAND -->  the arguments and options of `tplaudit COMMAND`
    <!-- policies -->          the policies
    <!-- rewrites: TEMPLATE TRANSCRIPT TURN -->
                               what oMLX and its parts make of a request, before a bundled template
    <!-- end -->

tests/test_docs.py compares every part with what this script makes of it.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "docs" / "schema"
#: The policies that a `rewrites` part compares: oMLX beside one that passes messages on, and oMLX's parts.
REWRITERS = ("as-is", "omlx", "omlx-strict", "hoist", "hoist+merge", "note", "note+merge")
PART = re.compile(
    r"<!-- (?P<kind>run|options|policies|rewrites)(?:: (?P<argument>.+?))? -->\n(?P<body>.*?)<!-- end -->\n",
    re.DOTALL,
)


def pages() -> list[Path]:
    """Return the Markdown files that may have generated parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def regenerated(text: str) -> str:
    """Return a page's text with its generated parts made anew."""
    return PART.sub(
        lambda part: _opening(part) + body(part["kind"], part["argument"]) + "<!-- end -->\n", text
    )


def _opening(part: re.Match[str]) -> str:
    return part.group()[: part.start("body") - part.start()]


def body(kind: str, argument: str | None) -> str:
    """Return what stands between the comments of one generated part."""
    if kind == "run":
        return f"```console\n$ {argument}\n{output(argument or '')}```\n"
    if kind == "options":
        return "".join(f"{row}\n" for row in option_rows(argument or ""))
    if kind == "rewrites":
        template, transcript, turn = (argument or "").split()
        return "```text\n" + "\n".join(rewrites(template, transcript, int(turn))) + "```\n"
    return "".join(f"{row}\n" for row in policy_rows())


@functools.cache
def output(command: str) -> str:
    """Return what a shell command prints, with paths below the repository's root made relative.

    Raises:
        SystemExit: the command was not found, or a Python traceback was printed.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "COLUMNS")}
    environment |= {
        "NO_COLOR": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
    )
    printed, errors = done.stdout.decode(), done.stderr.decode()
    if done.returncode == 127 or "Traceback" in printed + errors:
        raise SystemExit(f"{command}\n{printed}{errors}")
    return printed.replace(f"{ROOT}{os.sep}", "")


def commands() -> dict[str, Callable[..., Any]]:
    """Return the functions of the subcommands, by name."""
    from tplaudit.cli.app import app

    return {str(each.name): each.callback for each in app.registered_commands if each.callback}


def option_rows(command: str) -> Iterator[str]:
    """Yield a Markdown table of a command's arguments and options, from the declarations that typer reads."""
    yield "| argument or option | what it does |"
    yield "| --- | --- |"
    function = commands()[command]
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, declared = typing.get_args(parameter.annotation)
        default = parameter.default
        unset = default is None or isinstance(default, bool) or default is inspect.Parameter.empty
        shown = "" if unset else f" Default: {default}."
        yield f"| {_names(name, kind, declared)} | {_cell(declared.help)}{shown} |"


def _names(name: str, kind: Any, declared: Any) -> str:
    if isinstance(declared, ArgumentInfo):
        return f"`{declared.metavar}`"
    # In an annotation, typer takes the first name from where a default would stand.
    names = [each for each in (declared.default, *(declared.param_decls or ())) if isinstance(each, str)]
    names = names or [f"--{name.replace('_', '-')}"]
    value = "" if kind is bool else f" `{_cell(declared.metavar or _values(kind))}`"
    return ", ".join(f"`{each}`" for each in names) + value


def _values(kind: Any) -> str:
    """Return what stands for an option's value without a metavar: its choices, or N for a number."""
    of = next((each for each in typing.get_args(kind) if each is not type(None)), kind)
    return "|".join(each.value for each in of) if issubclass(of, Enum) else "N"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "\\<")


def policy_rows() -> Iterator[str]:
    """Yield a Markdown table of the policies."""
    from tplaudit.probes.policies import POLICIES

    yield "| policy | what it does | options |"
    yield "| --- | --- | --- |"
    for kind in POLICIES.values():
        options = ", ".join(f"`{name}={'|'.join(values)}`" for name, values in kind.options.items())
        page = f"policies/{kind.name}.md"
        name = f"[`{kind.name}`]({page})" if (ROOT / "docs" / page).is_file() else f"`{kind.name}`"
        yield f"| {name} | {_cell(kind.summary)} | {_cell(options)} |"


def rewrites(template: str, transcript: str, turn: int) -> list[str]:
    """Return each different outcome: the policies that have it, the messages, and what was done to them."""
    from tplaudit import fixtures
    from tplaudit.probes.policies import parse_policy
    from tplaudit.probes.template_files import load_template
    from tplaudit.probes.transcripts import open_transcript

    loaded = load_template(fixtures.template(template))
    request = list(open_transcript(ROOT / transcript))[turn - 1]
    policies: dict[str, list[str]] = {}
    for name in REWRITERS:
        prepared = parse_policy(name).prepare(request, loaded)
        lines = [f"    {message.role:<10} {_said(message.data)}\n" for message in prepared.request.messages]
        lines += [
            f"    -> {action.kind} {', '.join(map(str, action.messages))}: {action.why}\n"
            for action in prepared.actions
        ]
        policies.setdefault("".join(lines), []).append(name)
    return [f"{', '.join(which)}\n{outcome}" for outcome, which in policies.items()]


def _said(message: Mapping[str, Any]) -> str:
    calls = [f"calls {call['function']['name']}" for call in message.get("tool_calls") or ()]
    return ", ".join([*([repr(message["content"])] if message.get("content") else []), *calls])


def schemas() -> dict[str, str]:
    """Return the JSON schema files by name: what `--json` prints, from the types that it is printed from."""
    import msgspec
    from tplaudit.probes import report

    documents = {"replay-1.json": (report.ReplayReport, report.SCHEMA)}
    return {name: _schema(msgspec.json.schema(kind), title) for name, (kind, title) in documents.items()}


def _schema(schema: dict[str, Any], title: str) -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def stale(*, write: bool) -> list[Path]:
    """Return the files that are out of date, after rewriting them where asked."""
    wanted = {SCHEMAS / name: text for name, text in schemas().items()}
    wanted |= {page: regenerated(page.read_text(encoding="utf-8")) for page in pages()}
    found = []
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            found.append(path)
            if write:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    return found


if __name__ == "__main__":
    check = sys.argv[1:] == ["--check"]
    files = stale(write=not check)
    for file in files:
        print(f"{'stale' if check else 'rewritten'}: {file.relative_to(ROOT)}")
    sys.exit(1 if check and files else 0)
