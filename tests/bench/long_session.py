"""A coding agent's session that grows to a wanted length, the same on every machine.

    python tests/bench/long_session.py [REQUESTS] > session.jsonl

One message per line: tools, an opening system message, and then turn after turn a call with its reasoning
and the call's result. A reminder from the system follows some results, and a person's next wish some answers.
What the files, searches and test runs say is put together from lists of words, by a generator with a fixed
seed. With 88 requests the last prompt has about 35,000 tokens of the bundled tokenizer.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REQUESTS = 88
#: Requests between two reminders from the system, and between two wishes of the person.
REMINDER_EVERY, WISH_EVERY = 5, 17

_NOUNS = (
    "order invoice parcel route depot driver label scan crate shift ledger tariff pallet quota beacon".split()
)
_VERBS = "load merge check price split queue trace settle weigh assign renew export match reopen".split()
_SYSTEM = (
    "You maintain the code of a parcel service. Read before you change anything, keep changes small, and run "
    "the tests after each of them."
)
_REMINDERS = (
    "The list of steps was not touched for a while. Bring it up to date if it helps; do not mention this.",
    "{file} was changed by a formatter since it was read. Read it again before the next change to it.",
    "About {left} tokens are left in this conversation.",
)
_WISHES = (
    "{verb} for a {noun} rounds the wrong way when the weight is exactly half a kilogram. Find out where.",
    "Please give {file} a function that can {verb} several {noun}s at once, and a test for it.",
    "The nightly run was red because of {file}. What does it expect of a {noun}?",
)
_PARAMETERS = {
    "read_file": {"path": "string", "first_line": "integer"},
    "search": {"pattern": "string", "folder": "string"},
    "run_tests": {"path": "string"},
    "replace_text": {"path": "string", "old": "string", "new": "string"},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()} in the working copy.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in parameters.items()},
                "required": sorted(parameters),
            },
        },
    }
    for name, parameters in _PARAMETERS.items()
]


def messages(requests: int = REQUESTS) -> Iterator[dict[str, Any]]:
    """Yield the tools and then the messages of a session with so many requests."""
    made = random.Random(20260930)
    yield {"tools": TOOLS}
    yield {"role": "system", "content": _SYSTEM}
    yield {"role": "user", "content": _filled(_WISHES[0], made)}
    for turn in range(1, requests):
        if turn % WISH_EVERY == 0:
            yield {"role": "assistant", "content": f"Done: {_sentence(made)} {_sentence(made)}"}
            yield {"role": "user", "content": _filled(_WISHES[turn // WISH_EVERY % len(_WISHES)], made)}
            continue
        name = made.choice([*_PARAMETERS, "read_file", "read_file"])
        call, result = _called(name, made)
        yield {
            "role": "assistant",
            "content": _sentence(made) if turn % 3 == 0 else "",
            "reasoning_content": " ".join(_sentence(made) for _ in range(made.randint(1, 3))),
            "tool_calls": [
                {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": call}}
            ],
        }
        yield {"role": "tool", "tool_call_id": f"call_{turn}", "content": result}
        if turn % REMINDER_EVERY == 0:
            reminder = _REMINDERS[turn // REMINDER_EVERY % len(_REMINDERS)]
            yield {"role": "system", "content": _filled(reminder, made)}


def write(path: Path, requests: int = REQUESTS) -> Path:
    """Write a session as a transcript, and return where."""
    lines = (json.dumps(message, ensure_ascii=False) + "\n" for message in messages(requests))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _called(name: str, made: random.Random) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call and what it gives."""
    file = _file(made)
    if name == "read_file":
        first = 1 + 40 * made.randint(0, 6)
        body = "\n".join(function(made) for _ in range(made.randint(1, 3)))
        numbered = (f"{number:4} {line}" for number, line in enumerate(body.splitlines(), first))
        return {"path": file, "first_line": first}, "\n".join(numbered)
    if name == "search":
        word = made.choice(_NOUNS)
        found = (f"{_file(made)}:{made.randint(3, 400)}: {_statement(made, word)}" for _ in range(6))
        return {"pattern": word, "folder": "src"}, "\n".join(found)
    if name == "run_tests":
        names = (f"tests/test_{made.choice(_NOUNS)}.py::test_{_called_so(made)} passed" for _ in range(8))
        return {"path": "tests"}, "\n".join([*names, f"8 passed in {made.random():.2f} s"])
    old, new = _statement(made), _statement(made)
    return {"path": file, "old": old, "new": new}, f"{file}: one place changed\n-{old}\n+{new}"


def function(made: random.Random) -> str:
    """Return a function as a file of the session has it."""
    noun = made.choice(_NOUNS)
    body = "\n".join(f"    {_statement(made, noun)}" for _ in range(made.randint(3, 6)))
    return (
        f'def {_called_so(made)}({noun}, limit={made.randint(2, 90)}):\n    """{_sentence(made)}"""\n{body}\n'
    )


def _statement(made: random.Random, noun: str | None = None) -> str:
    noun = noun or made.choice(_NOUNS)
    other, verb = made.choice(_NOUNS), made.choice(_VERBS)
    return made.choice(
        (
            f"{other}s = [{verb}_{other}(each) for each in {noun}.{other}s if each.{made.choice(_NOUNS)}]",
            f"if {noun}.{other}_count > {made.randint(1, 999)}: return {verb}_{noun}({noun}, limit)",
            f"total += round({noun}.{other} * {made.random():.3f}, 2)",
            f'log.info("{verb} {noun} %s at {other} %d", {noun}.name, {made.randint(1, 99)})',
        )
    )


def _sentence(made: random.Random) -> str:
    return made.choice(
        (
            f"The {made.choice(_NOUNS)} has to {made.choice(_VERBS)} before its {made.choice(_NOUNS)} does.",
            f"Nothing in {_file(made)} calls {_called_so(made)} twice.",
            f"A {made.choice(_NOUNS)} without a {made.choice(_NOUNS)} is left out on purpose.",
        )
    )


def _called_so(made: random.Random) -> str:
    return f"{made.choice(_VERBS)}_{made.choice(_NOUNS)}"


def _file(made: random.Random) -> str:
    return f"src/{made.choice(_NOUNS)}/{_called_so(made)}.py"


def _filled(text: str, made: random.Random) -> str:
    return text.format(
        file=_file(made), verb=made.choice(_VERBS), noun=made.choice(_NOUNS), left=1000 * made.randint(20, 90)
    )


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if sys.argv[1:] else REQUESTS
    sys.stdout.writelines(json.dumps(message, ensure_ascii=False) + "\n" for message in messages(wanted))
