"""What the gate can say about a change of a template: rules with stable ids, each a section of docs/gate.md.

System turns keep the ids of the probe's findings (docs/findings.md), of the worse of the two verdicts.
"""

from __future__ import annotations

from ..findings import RULES, Rule
from ..placements.findings import RULE_OF_VERDICT

_ROWS = (
    Rule(
        "prompt-changed",
        "error",
        "The prompt of a conversation changed, and no rule says that it is better or worse",
        "Read the diff; if it is meant, name the conversations with --allow changed:PATTERN",
    ),
    Rule(
        "generation-prompt",
        "error",
        "What a prompt ends with for the model to continue changed",
        "Models are trained on one such text; if the change is meant, --allow changed:generation-prompt",
    ),
    Rule(
        "prompt-raises",
        "error",
        "The template raises on a conversation on which it did not, or the other way round",
        "Look at the line: real clients send such conversations",
    ),
    Rule(
        "text-lost",
        "error",
        "The text of a message is missing from the prompt, without an error",
        "Write every message; the model never sees what is missing",
    ),
    Rule(
        "text-moved",
        "error",
        "The texts of the messages stand in the prompt in another order than in the conversation",
        "Write messages in the order in which they come",
    ),
    Rule(
        "history-rewritten",
        "error",
        "A prompt no longer begins with the prompt of the turn before it, so that a prefix cache loses it",
        "What is written about earlier turns must not depend on later ones",
    ),
    Rule(
        "reasoning-history",
        "error",
        "The template keeps more or less of the reasoning of earlier turns than it did",
        "See `tplaudit thinking` on both templates",
    ),
    Rule(
        "named-template",
        "error",
        "A named template of the model vanished or is new",
        "Clients name it in their requests; keep it, or --allow changed:named-template for a new one",
    ),
    Rule(
        "engines-differ",
        "error",
        "llama.cpp's template engine writes another prompt than transformers' Jinja",
        "Use constructs that both engines treat alike; docs/engines.md",
    ),
    Rule(
        "replay-raises",
        "error",
        "More or fewer requests of a transcript fail under a server's policy",
        "See `tplaudit replay` with both templates",
    ),
    Rule(
        "replay-avoidable",
        "error",
        "A transcript's replay computes more or fewer tokens again that it need not",
        "See `tplaudit replay` with both templates",
    ),
    Rule(
        "text-only",
        "note",
        "The template's text changed, and its behaviour did not",
        "Nothing to do",
    ),
)
#: Findings of the probe that the gate follows, apart from the placements.
FOLLOWED = ("probe-false-positive", "template-clock", "string-arguments-raise", "parts-list-repr")
_SHARED = (*RULE_OF_VERDICT.values(), "generation-prompt-not-in-history", *FOLLOWED)
#: All rules of the gate by id, in the order in which reports list them.
GATE_RULES: dict[str, Rule] = {rule.id: rule for rule in (*(RULES[name] for name in _SHARED), *_ROWS)}


def gate_documentation(rule: str) -> str | None:
    """Return what there is to know of a rule that only the gate has, as Markdown; None where it has none."""
    found = next((row for row in _ROWS if row.id == rule), None)
    if found is None:
        return None
    return (
        f"# {found.id}\n\n{found.title}.\n\n{found.help}.\n\nIt is a rule of `tplaudit gate`: docs/gate.md.\n"
    )
