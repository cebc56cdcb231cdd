"""The case folders: what a template makes of each request under each policy, as transformers renders it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.registry import Prepared, parse_policy
from tplaudit.probes.policies.rewrite.texts import flat_text

CASES = sorted((Path(__file__).parents[2] / "cases").glob("*/case.json"))
ROWS = [
    (path, policy)
    for path in CASES
    for policy in json.loads(path.read_text(encoding="utf-8"))["expect"]["policies"]
]


def rows_id(value: Any) -> str:
    return value.parent.name if isinstance(value, Path) else str(value)


def request_of(given: dict[str, Any]) -> Request:
    return Request(
        tuple(Message(data, n) for n, data in enumerate(given["messages"])),
        tools=tuple(given["tools"]) if given.get("tools") else None,
        kwargs=given.get("chat_template_kwargs") or {},
    )


def rendered(template: str, request: Request, *, prompted: bool = True) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages: list[Any] = [dict(message.data) for message in request.messages]
    tools: list[Any] | None = list(request.tools) if request.tools else None
    result: Any = render_jinja_template(
        [messages],
        tools=tools,
        chat_template=template,
        add_generation_prompt=prompted,
        bos_token="<bos>",
        eos_token="<eos>",
        **request.kwargs,
    )
    return str(result[0][0])


def outcome(template: str, prepared: Prepared, original: Request) -> tuple[dict[str, Any], str]:
    """What a row of the expectations says of a request, and the prompt."""
    row: dict[str, Any] = {}
    prompt = ""
    try:
        prompt = rendered(template, prepared.request)
        row["chars"] = len(prompt)
        row["body_chars"] = len(rendered(template, prepared.request, prompted=False))
        missing = [
            message.index for message in original.messages if flat_text(message).text.strip() not in prompt
        ]
        if missing:
            row["text_missing_of"] = missing
    except Exception as error:
        row = {"error": f"{type(error).__name__}: {error}"}
    refused = [action for action in prepared.actions if action.kind == "refused"]
    if refused:
        row["note_refused_at"] = refused[0].messages[0]
    return row, prompt


@pytest.mark.parametrize(("path", "policy"), ROWS, ids=rows_id)
def test_case(path: Path, policy: str) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    expected = case["expect"]["policies"][policy]
    template = (path.parent / case["template_file"]).read_text(encoding="utf-8")
    requests = [request_of(given) for given in case["requests"]]
    prepared = [parse_policy(policy).prepare(request, None) for request in requests]  # type: ignore[arg-type]
    outcomes = [outcome(template, after, before) for after, before in zip(prepared, requests, strict=True)]
    assert [row for row, _ in outcomes] == expected["requests"]

    for pair in expected["pairs"]:
        if "error" in pair:
            continue
        earlier, later = (outcomes[pair[which]][1] for which in ("earlier", "later"))
        shared = next(
            (n for n, (a, b) in enumerate(zip(earlier, later, strict=False)) if a != b), len(earlier)
        )
        assert shared == pair["shared_chars"]
        if pair.get("rendered_index") is None:
            continue
        owner = prepared[pair["later"]].request.messages[pair["rendered_index"]]
        assert pair["index"] in {owner.index, *owner.origins}
        text = owner.content if isinstance(owner.content, str) else ""
        start = later.find(text) if text and later.count(text) == 1 else len(later)
        if start <= shared < start + len(text):
            assert owner.origin(shared - start) == pair["index"]
