from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from tplaudit.probes.transcripts.reader import open_transcript

CASES = Path(__file__).parents[3] / "cases"
USER = {"role": "user", "content": "Which checks fail?"}


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_every_case_reads_as_it_is_written(case: str) -> None:
    path = CASES / case / "case.json"
    wanted = json.loads(path.read_text(encoding="utf-8"))["requests"]
    requests = list(open_transcript(path))
    assert len(requests) == len(wanted) > 1
    for number, (request, body) in enumerate(zip(requests, wanted, strict=True), 1):
        assert json.dumps([dict(message.data) for message in request.messages]) == json.dumps(
            body["messages"]
        )
        assert [message.index for message in request.messages] == list(range(len(body["messages"])))
        assert json.dumps(request.tools) == json.dumps(body.get("tools"))
        assert dict(request.kwargs) == body.get("chat_template_kwargs", {})
        assert request.now == (datetime.fromisoformat(body["now"]) if "now" in body else None)
        assert request.where == f"{path}: request {number}"


@pytest.mark.parametrize("indent", [None, 0, 1])
def test_a_document_may_have_one_line_or_many(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "document.json"
    requests = [{"messages": [USER]}, {"request": {"messages": [USER, USER]}, "response": {"content": "x"}}]
    path.write_text("\ufeff\n" + json.dumps({"id": "x", "requests": requests}, indent=indent))
    first, second = open_transcript(path)
    assert first.messages[0] is second.messages[0]
    assert second.reply == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    "start", ['{"requests": [\n', '{"requests":\n[', '{\n"requests": [', '{"id": 1,\n"requests": [']
)
def test_a_line_may_end_wherever_json_allows(tmp_path: Path, start: str) -> None:
    path = tmp_path / "document.json"
    path.write_text(start + json.dumps({"messages": [USER]}) + "]\n}")
    (request,) = open_transcript(path)
    assert request.messages[0].content == "Which checks fail?"


def test_a_single_request_body_may_be_spread_over_lines(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "m", "messages": [USER]}, indent=2))
    (request,) = open_transcript(path)
    assert dict(request.messages[0].data) == USER
