"""Regenerates what is generated in README.md and docs/: real output, option tables, the JSON schemas.

    python docs/generate.py           rewrite what is stale, and name the files
    python docs/generate.py --check   only name them, and exit with 1 where there are any

A generated part stands between two comments, of which the first says what it is:

    <!-- run: COMMAND -->      COMMAND and what it prints, run by sh in the repository's root
    <!-- options: COMMAND -->  the arguments and options of `tplaudit COMMAND`
    <!-- policies -->          the policies
    <!-- prepared: POLICY TEMPLATE TRANSCRIPT TURN -->
                               what a policy makes of a request, before a bundled template
    <!-- rewrites: TEMPLATE TRANSCRIPT TURN -->
                               the same for oMLX and its parts
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
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "docs" / "schema"
#: The policies that a `rewrites` part compares: oMLX beside one that passes messages on, and oMLX's parts.
REWRITERS = ("as-is", "omlx", "omlx-strict", "hoist", "hoist+merge", "note", "note+merge")
KINDS = "run|options|policies|prepared|rewrites"
PART = re.compile(
    rf"<!-- (?P<kind>{KINDS})(?:: (?P<argument>.+?))? -->\n(?P<body>.*?)<!-- end -->\n", re.DOTALL
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
    if kind in ("prepared", "rewrites"):
        *names, turn = (argument or "").split()
        lines = prepared(*names, int(turn)) if kind == "prepared" else rewrites(*names, int(turn))
        return "\n".join(["```text", *lines, "```\n"])
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
        "TPLAUDIT_CACHE_DIR": os.devnull,  # no calibration of this machine
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
    given = [each for each in (declared.default, *(declared.param_decls or ())) if isinstance(each, str)]
    dashed = name.replace("_", "-")
    given = given or [f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"]
    names = [each for both in given for each in both.split("/")]
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
    from tplaudit.probes.policies.registry import POLICIES

    yield "| policy | what it does | options |"
    yield "| --- | --- | --- |"
    for kind in POLICIES.values():
        options = ", ".join(f"`{name}={option.choices}`" for name, option in kind.options.items())
        page = f"policies/{kind.name}.md"
        name = f"[`{kind.name}`]({page})" if (ROOT / "docs" / page).is_file() else f"`{kind.name}`"
        yield f"| {name} | {_cell(kind.summary)} | {_cell(options)} |"


def prepared(policy: str, template: str, transcript: str, turn: int) -> list[str]:
    """Return what a policy makes of one turn: each message that the template gets, and what was done."""
    from tplaudit import fixtures
    from tplaudit.probes.models.template_files import load_template
    from tplaudit.probes.policies.registry import parse_policy
    from tplaudit.probes.transcripts.reader import open_transcript

    request = list(open_transcript(ROOT / transcript))[turn - 1]
    after = parse_policy(policy).prepare(request, load_template(fixtures.template(template)))
    lines = []
    for message in after.request.messages:
        said = json.dumps(message.content, ensure_ascii=False)
        calls = " and calls a tool" if message.data.get("tool_calls") else ""
        lines.append(f"{message.role:<10}{said}{calls}")
    for action in after.actions:
        where = ", ".join(map(str, action.messages))
        lines.append(f"-> {action.kind}{f' {where}' if where else ''}: {action.why}")
    return lines


def rewrites(template: str, transcript: str, turn: int) -> list[str]:
    """Return each different outcome of `prepared`, below the names of the policies that have it."""
    policies: dict[tuple[str, ...], list[str]] = {}
    for name in REWRITERS:
        policies.setdefault(tuple(prepared(name, template, transcript, turn)), []).append(name)
    lines = []
    for outcome, names in policies.items():
        lines += ["", ", ".join(names), *(f"    {line}" for line in outcome)]
    return lines[1:]


def schemas() -> dict[str, str]:
    """Return the JSON schema files by name: what `--json` prints, from the types that it is printed from."""
    import msgspec
    from tplaudit.probes.cost import calibration
    from tplaudit.probes.replay import replay_report as report
    from tplaudit.probes.transcripts.grouping import listing

    documents: dict[str, tuple[type, str]] = {
        "replay-2.json": (report.ReplayReport, report.SCHEMA),
        "transcripts-1.json": (listing.TranscriptListing, listing.SCHEMA),
        "calibration-1.json": (calibration.Calibration, calibration.SCHEMA),
    }
    return {name: _schema(msgspec.json.schema(kind), title) for name, (kind, title) in documents.items()}


def _schema(schema: dict[str, Any], title: str) -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def stale(*, write: bool) -> Iterator[Path]:
    """Yield the files that are out of date, after rewriting each where asked."""
    yield from _compare(((SCHEMAS / name, text) for name, text in schemas().items()), write)
    yield from _compare(((page, regenerated(page.read_text(encoding="utf-8"))) for page in pages()), write)


def _compare(wanted: Iterable[tuple[Path, str]], write: bool) -> Iterator[Path]:
    for path, text in wanted:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield path


if __name__ == "__main__":
    check = sys.argv[1:] == ["--check"]
    found = False
    for file in stale(write=not check):
        found = True
        print(f"{'stale' if check else 'rewritten'}: {file.relative_to(ROOT)}")
    sys.exit(1 if check and found else 0)
