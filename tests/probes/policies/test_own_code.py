"""A person's own function as a policy: its process, what it may return, and how it fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_messages import A, S, U, data, request_of
from tplaudit import fixtures
from tplaudit.probes.caches.registry import cache_name, server_cache
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import UsageError
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.own_code import body_of, read_code_spec
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.reader import open_transcript

from tests.conformance.packages import python

TEMPLATE = ChatTemplate(
    {
        "default": "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('late') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    },
    source="test",
)
CODE = """
import json, sys, time
def hoist(body, route, template, between="|"):
    print("said by the function")
    texts = [m["content"] for m in body["messages"] if m["role"] == "system"]
    rest = [m for m in body["messages"] if m["role"] != "system"]
    return [{"role": "system", "content": between.join(texts)}, *rest], body.get("tools"), {"route": route}
def same(body, route, template): return body["messages"]
def probing(body, route, template):
    try:
        template.apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=False)
    except Exception as error:
        return [{"role": "user", "content": f"{type(error).__name__} {error.kind}: {error}"}]
    return [{"role": "user", "content": template.render(body["messages"]) + template.chat_template[:3]}]
def raising(body, route, template): raise KeyError("no such thing")
def wrong(body, route, template): return {"messages": []}
def no_json(body, route, template): return [{"role": "user", "content": object()}]
def dying(body, route, template): sys.exit(3)
def sleeping(body, route, template): time.sleep(600)
NAME = 3
"""


@pytest.fixture
def code(tmp_path: Path) -> Callable[[str], str]:
    file = tmp_path / "own.py"
    file.write_text(CODE)
    return lambda rest: f"code:{file}::{rest}"


def test_what_the_function_returns_is_prepared(code: Any) -> None:
    request = request_of([S("abc"), U("b"), S("xyz"), A("d"), U("e")])
    policy = parse_policy(code("hoist:between=+"))
    for _ in range(2):
        after = policy.prepare(request, TEMPLATE)
        assert data(after) == [S("abc+xyz"), U("b"), A("d"), U("e")]
        assert after.request.kwargs == {"route": "chat"}
        (first, *others) = after.request.messages
        assert [first.origin(at) for at in range(7)] == [0] * 3 + [2] * 4
        assert [message.index for message in others] == [1, 3, 4]
        assert [(action.kind, action.messages) for action in after.actions] == [("hoisted", (2,))]


def test_messages_alone_leave_the_rest_as_it_was(code: Any) -> None:
    tools = ({"type": "function", "function": {"name": "f"}},)
    request = request_of([U("a")]).replace(tools=tools, kwargs={"x": 1})
    after = parse_policy(code("same")).prepare(request, TEMPLATE)
    assert after.request.tools == tools
    assert after.request.kwargs == {"x": 1}
    assert after.actions == ()


def test_the_function_can_render(code: Any) -> None:
    policy = parse_policy(code("probing"))
    assert data(policy.prepare(request_of([U("a")]), TEMPLATE)) == [U("<user>a{% ")]
    late = policy.prepare(request_of([U("a"), S("b")]), TEMPLATE)
    assert data(late) == [U("TemplateError TemplateError: late")]


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        ("raising", "KeyError", "'no such thing'"),
        ("wrong", "TypeError", "returns neither a list of messages nor"),
        ("no_json", "TypeError", "not JSON serializable"),
        ("dying", "PolicyCode", "its process has ended"),
    ],
)
def test_a_failing_function_costs_its_turn(code: Any, function: str, kind: str, said: str) -> None:
    after = parse_policy(code(function)).prepare(request_of([U("a")]), TEMPLATE)
    assert after.error is not None
    assert (after.error.kind, said in after.error.message) == (kind, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("code:x.py", "names no function"),
        ("code:x.py::a-b", "names no function"),
        ("code:x.py::f:y", "'y' is no option"),
        ("code:no/such.py::f", "there is no file 'no/such.py'"),
    ],
)
def test_wrong_names(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_policy(name)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("missing", "it has no function missing"),
        ("NAME", "it has no function NAME"),
        ("same:python=/no/python", "/no/python does not start"),
    ],
)
def test_what_cannot_be_run(code: Any, rest: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_policy(code(rest))


def test_a_file_that_does_not_import(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_at_all")
    with pytest.raises(UsageError, match="No module named 'no_such_module_at_all'; mend the file"):
        parse_policy(f"code:{tmp_path / 'broken.py'}::f")


def test_the_cache_is_the_one_that_is_named(code: Any) -> None:
    assert cache_name(parse_policy(code("same"))) == "paged"
    assert server_cache(parse_policy(code("same"))).block_size == 256
    named = parse_policy(code("same:cache=llama-cpp"))
    assert server_cache(named).kind == server_cache(parse_policy("llama-cpp")).kind
    with pytest.raises(UsageError, match="there is no policy 'nothing'"):
        server_cache(parse_policy(code("same:cache=nothing")))


def test_the_body_is_what_the_client_sent() -> None:
    chat = Request((Message(U("a"), 0),), tools=(), kwargs={"x": 1}, fields={"model": "m"}, partial=True)
    assert body_of(chat) == {
        "model": "m",
        "messages": [U("a")],
        "tools": [],
        "chat_template_kwargs": {"x": 1},
        "continue_final_message": True,
    }
    anthropic = Request((Message(U("a"), 0),), dialect="anthropic-messages", system="s")
    assert body_of(anthropic) == {"messages": [U("a")], "system": "s"}
    responses = Request((Message(U("a"), 0),), dialect="openai-responses", system="s")
    assert body_of(responses) == {"input": [U("a")], "instructions": "s"}
    assert read_code_spec("omlx:route=chat") is None


def test_no_process_is_left_when_the_parent_is_killed(code: Any, tmp_path: Path) -> None:
    script = (
        "import sys; from tplaudit.probes.policies.registry import parse_policy\n"
        f"policy = parse_policy({code('same')!r})\n"
        "print(policy._process._process.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(200):
        if not _runs(child):
            return
        time.sleep(0.05)
    pytest.fail("the function's process outlives its parent")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif("OMLX" not in os.environ, reason="OMLX names no checkout of oMLX")
@pytest.mark.parametrize(("unsupported", "policy"), [("user_note_safe", "omlx"), ("strict", "omlx-strict")])
@pytest.mark.parametrize("template", ["strict", "in-place"])
@pytest.mark.parametrize("session", ["chat", "claude-code", "codex"])
def test_the_example_is_omlx(
    session: str, template: str, unsupported: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ["OMLX"])
    example = fixtures.template("strict").parents[2] / "docs" / "examples" / "omlx_policy.py"
    own = f"code:{example}::prepare:cache=omlx,unsupported={unsupported},python={python()}"
    model = load_model(str(fixtures.template(template)))
    transcript = open_transcript(str(fixtures.transcript(session)))
    run = Replay(transcript, model, [parse_policy(own), parse_policy(f"{policy}:version=0.5.3")])
    for one, other in run.turns():
        assert one.error is None
        assert (one.prompt_tokens, one.reused, one.avoidable) == (
            other.prompt_tokens,
            other.reused,
            other.avoidable,
        )
        causes = [turn.divergence.cause if turn.divergence else None for turn in (one, other)]
        assert causes[0] == causes[1]
