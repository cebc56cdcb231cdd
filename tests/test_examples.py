"""The scripts of docs/examples that record sessions, between a client and a stand-in for a model server."""

import importlib.util
import json
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tplaudit.probes.conversation import Request
from tplaudit.probes.transcripts.reader import open_transcript

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
USER = {"role": "user", "content": "Grüße"}
CHAT = "/v1/chat/completions"
REPLY = {"choices": [{"message": {"role": "assistant", "content": "Hi."}}]}
STREAM = [b'event: message_start\ndata: {"type": "message_start"}\n\n', b"data: [DONE]\n\n"]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Server(BaseHTTPRequestHandler):
    """Answers as servers do: with JSON, with a stream in chunks, with an error; keeps what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, bytes, dict[str, str]]]
    go_on: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked.append((self.path, body, dict(self.headers.items())))
        if self.path.startswith("/v1/messages"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (*STREAM, b""):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
                if piece == STREAM[0]:
                    assert type(self).go_on.wait(10)
            return
        self.answer(400 if b"bad" in body else 200, {"error": "no"} if b"bad" in body else REPLY)

    def do_GET(self) -> None:
        self.answer(200, {"data": [self.path]})

    def answer(self, status: int, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[Callable[..., tuple[int, bytes]], Path]]:
    """Yield a function that sends a request through the recorder, and the file that it writes."""
    Server.asked, Server.go_on = [], threading.Event()
    file = tmp_path / "session.jsonl"

    with serving(Server) as port, serving(example("record").recorder(f"http://127.0.0.1:{port}", file)) as at:

        def send(path: str, value: Any, method: str = "POST", chunked: bool = False) -> tuple[int, bytes]:
            connection = HTTPConnection("127.0.0.1", at, timeout=20)
            body = b"" if value is None else json.dumps(value).encode()
            sent = iter([body[:5], body[5:]]) if chunked else body
            headers = {"Authorization": "Bearer key-1"} | (
                {"Transfer-Encoding": "chunked"} if chunked else {}
            )
            connection.request(method, path, sent, headers, encode_chunked=chunked)
            answer = connection.getresponse()
            parts = [answer.read1()] if path.startswith("/v1/messages") else []
            Server.go_on.set()  # the first piece of a stream arrived before the second was written
            text = b"".join([*parts, answer.read()])
            connection.close()
            return answer.status, text

        yield send, file


def requests(file: Path, count: int = 1) -> list[Request]:
    """Return the recorded requests, once so many are there: a line is written when the answer has gone."""
    deadline = time.monotonic() + 20
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return list(open_transcript(file))


def test_a_chat_session_is_recorded_with_its_replies(recorded) -> None:
    send, file = recorded
    first = {"model": "m", "messages": [USER]}
    assert send(CHAT, first) == (200, json.dumps(REPLY).encode())
    second = {"model": "m", "messages": [USER, {"role": "assistant", "content": "Hi."}, USER]}
    assert send(CHAT, second, chunked=True)[0] == 200
    assert [json.loads(body) for _, body, _ in Server.asked] == [first, second]
    assert Server.asked[0][2]["Authorization"] == "Bearer key-1"
    one, two = requests(file, 2)
    assert [message.data["content"] for message in one.messages] == ["Grüße"]
    assert one.reply == {"role": "assistant", "content": "Hi."}
    assert one.now is not None
    assert len(two.messages) == 3
    assert b"key-1" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_stream_is_handed_on_as_it_comes_and_its_request_recorded(recorded) -> None:
    send, file = recorded
    body = {"system": "Be brief.", "messages": [USER], "stream": True}
    assert send("/v1/messages?beta=true", body) == (200, b"".join(STREAM))
    (request,) = requests(file)
    assert request.dialect == "anthropic-messages"
    assert request.reply is None


def test_responses_are_recorded_and_other_calls_are_not(recorded) -> None:
    send, file = recorded
    assert send("/v1/models", None, "GET") == (200, b'{"data": ["/v1/models"]}')
    assert send("/v1/embeddings", {"input": "x"})[0] == 200
    assert send("/v1/messages/count_tokens", {"messages": [USER]})[0] == 200
    assert not file.exists()
    assert send("/v1/responses", {"instructions": "Be brief.", "input": "bad"})[0] == 400
    (request,) = requests(file)
    assert json.loads(file.read_text()).keys() == {"request", "now"}
    assert request.dialect == "openai-responses"


def test_a_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = example("record").recorder("http://127.0.0.1:9", tmp_path / "session.jsonl")
    with serving(handler) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", CHAT, json.dumps({"messages": [USER]}))
        assert connection.getresponse().status == 502
        connection.close()
    assert "refused" in capsys.readouterr().err.lower()
    assert len(requests(tmp_path / "session.jsonl")) == 1


def test_the_script_for_mitmproxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = example("mitm_record")
    file = tmp_path / "session.jsonl"
    monkeypatch.setenv("SESSION", str(file))

    def flow(path: str, method: str = "POST") -> SimpleNamespace:
        asked = SimpleNamespace(method=method, path=path, get_text=lambda: json.dumps({"messages": [USER]}))
        return SimpleNamespace(request=asked, response=SimpleNamespace(stream=False))

    for each in (flow(CHAT), flow("/v1/messages/count_tokens"), flow(CHAT, "GET"), flow(f"{CHAT}?x=1")):
        script.request(each)
        script.responseheaders(each)
        assert each.response.stream is True
    assert [len(request.messages) for request in requests(file)] == [1, 1]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
