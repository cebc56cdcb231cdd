"""Write down what an agent sends to its model server, as the transcript that `tplaudit replay` reads.

    python3 record.py http://127.0.0.1:8000 session.jsonl

Then let the agent talk to http://127.0.0.1:8900 in the place of http://127.0.0.1:8000. Every request is
handed on unchanged, and every answer as it comes. What is posted to `…/chat/completions`, `…/messages` or
`…/responses` becomes a line of the file: `request`, the body; `now`, the local time; and `response` where
the answer was one JSON object, no stream. Headers, and with them keys, are not written. The proxy listens on
this machine only and connects to nothing but the given server; other users cannot read the file.

It needs nothing but Python 3.11 or newer.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RECORDED = ("/chat/completions", "/messages", "/responses")
#: Headers about one connection; and those that are made anew, or would make answers unreadable.
OWN_HEADERS = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
NOT_HANDED_ON = OWN_HEADERS | {"host", "content-length", "accept-encoding"}


def recorder(server: str, file: Path) -> type[BaseHTTPRequestHandler]:
    """Return a handler that hands requests on to a server and writes them to a file.

    Args:
        server: its address, such as `http://127.0.0.1:8000`; a path in it comes before the request's.
        file: the transcript, which lines are added to.
    """
    target = urlsplit(server)
    connect = HTTPSConnection if target.scheme == "https" else HTTPConnection
    lock = threading.Lock()

    def write(line: dict[str, Any]) -> None:
        with lock:
            file.touch(mode=0o600)
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")

    class Recorder(BaseHTTPRequestHandler):
        """One connection of the agent."""

        protocol_version = "HTTP/1.1"

        def hand_on(self) -> None:
            """Send a request on, and its answer back; write both."""
            body = self.read_body()
            line = {"request": as_json(body), "now": datetime.now().astimezone().isoformat()}
            recorded = self.command == "POST" and urlsplit(self.path).path.endswith(RECORDED)
            headers = {name: text for name, text in self.headers.items() if name.lower() not in NOT_HANDED_ON}
            headers |= {"Content-Length": str(len(body))} if body else {}
            connection = connect(target.netloc)
            begun = False
            try:
                connection.request(self.command, target.path.rstrip("/") + self.path, body or None, headers)
                answer = connection.getresponse()
                begun = True
                response = as_json(self.hand_back(answer))
                if isinstance(response, dict) and answer.status == 200:
                    line["response"] = response
            except (HTTPException, OSError) as error:
                self.close_connection = True
                print(f"{self.path}: {error or type(error).__name__}", file=sys.stderr)
                if not begun:
                    self.send_error(502, f"no answer from {server}")
            finally:
                connection.close()
                if recorded and isinstance(line["request"], dict):
                    write(line)

        def read_body(self) -> bytes:
            """Return the request's body, which comes with its length or in chunks."""
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def hand_back(self, answer: HTTPResponse) -> bytes:
            """Send the server's answer to the agent, piece by piece; return its body."""
            self.send_response_only(answer.status, answer.reason)
            for name, text in answer.getheaders():
                if name.lower() not in OWN_HEADERS:
                    self.send_header(name, text)
            if answer.length is None:  # it ends with the connection
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            body = b""
            while piece := answer.read1(65536):
                body += piece
                self.wfile.write(piece)
                self.wfile.flush()
            return body

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = hand_on

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing about requests that went well."""

    return Recorder


def as_json(text: bytes) -> Any:
    """Return a JSON value, or None where the text is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def main() -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Record what an agent sends to its model server.")
    parser.add_argument("server", help="address of the server, such as http://127.0.0.1:8000")
    parser.add_argument("file", type=Path, help="the transcript; lines are added at its end")
    parser.add_argument("--port", type=int, default=8900, help="where the agent connects, on this machine")
    given = parser.parse_args()
    try:
        proxy = ThreadingHTTPServer(("127.0.0.1", given.port), recorder(given.server, given.file))
    except (OSError, OverflowError) as error:
        sys.exit(f"port {given.port}: {error}; give another --port")
    print(f"recording to {given.file}; point the agent to http://127.0.0.1:{proxy.server_port}", flush=True)
    try:
        proxy.serve_forever()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
