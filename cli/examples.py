"""The examples in each command's help. A test runs every one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A command line, and what it is for."""

    what: str
    command: str


_EXAMPLES = {
    "probe": (
        Example("What does a template do with system messages and reasoning?", "tplaudit probe new.jinja"),
        Example("Show one conversation and its prompts.", "tplaudit probe new.jinja --show tool/tail"),
    ),
    "thinking": (
        Example("Does a template keep reasoning in history?", "tplaudit thinking new.jinja"),
        Example(
            "How does oMLX merge a request's kwargs?",
            "tplaudit thinking new.jinja --settings model_settings.json",
        ),
    ),
    "replay": (
        Example(
            "What does a session prefill again, and why?",
            "tplaudit replay session.jsonl --template new.jinja --policy omlx",
        ),
        Example("Explain one turn in full.", "tplaudit replay session.jsonl --explain 3"),
    ),
    "transcripts": (
        Example("Which conversations are in a recorded session?", "tplaudit transcripts session.jsonl"),
        Example("What does each request continue?", "tplaudit transcripts session.jsonl --json"),
    ),
    "calibrate": (
        Example(
            "Measure a model, so that replay predicts seconds.", "tplaudit calibrate bundled --depth 512"
        ),
        Example("Print what was measured.", "tplaudit calibrate bundled --depth 512 --json"),
    ),
    "render": (
        Example(
            "What does each server make of the third turn?",
            "tplaudit render session.jsonl --turn 3 --policy all",
        ),
        Example("How do two servers' prompts differ?", "tplaudit render session.jsonl --diff as-is omlx"),
    ),
    "policies": (
        Example("Which servers are known?", "tplaudit policies"),
        Example("What does oMLX do to a request?", "tplaudit policies omlx"),
    ),
    "gate": (
        Example(
            "Does a new version of a template break anything?",
            "tplaudit gate --base old.jinja --head new.jinja",
        ),
        Example(
            "Replay a session with both, and limit what is prefilled again.",
            "tplaudit gate --base old.jinja --head new.jinja --transcripts session.jsonl "
            "--max-avoidable-tokens base",
        ),
    ),
    "lock": (
        Example("Write down what a template does.", "tplaudit lock new.jinja"),
        Example("Check that it still does the same.", "tplaudit lock new.jinja --check"),
    ),
    "rules": (
        Example("What is looked for?", "tplaudit rules"),
        Example("The same for a program.", "tplaudit rules --json"),
    ),
    "explain": (
        Example("What does a rule mean?", "tplaudit explain system-dropped"),
        Example("What does a cause mean?", "tplaudit explain system-hoisted"),
    ),
}


def examples_of(command: str) -> tuple[Example, ...]:
    """Return the examples of a command."""
    return _EXAMPLES.get(command, ())
