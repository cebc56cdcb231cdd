"""Runs one server's own functions: `python child.py SERVER FOLDER`, a JSON line in, a JSON line out.

A line holds `function`, `body` and `template`; the answer holds `prompt`, or `answer` for a test of the
template, which has an empty body, or `refused` or `raised` with the server's words, and `calls`, what the
server gave to its template.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    sys.path.insert(0, str(Path(__file__).parents[2]))
    answers = os.fdopen(os.dup(1), "w")  # what a server prints goes to stderr
    os.dup2(2, 1)
    server = importlib.import_module(f"tests.conformance.servers.{name}").SERVER
    sys.path.insert(0, str(folder))
    functions = server.load(folder)
    logging.disable()  # what a server says of each request is in its answer
    from tests.conformance.server import Refused
    from tests.conformance.tokenizer import Rendered, Tokenizer

    print(json.dumps({"functions": sorted(functions)}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        tokenizer = Tokenizer(asked["template"])
        try:
            value = functions[asked["function"]](asked["body"], tokenizer)
            answer = (
                {"answer": value} if asked["body"] == {} else {"raised": "the server's code did not render"}
            )
        except Rendered as rendered:
            answer = {"prompt": rendered.prompt}
        except Refused as error:
            answer = {"refused": str(error)}
        except Exception as error:  # whatever a server's code raises is its answer
            answer = {"raised": f"{type(error).__name__}: {error}"}
        calls = json.loads(json.dumps(tokenizer.calls, default=repr))
        print(json.dumps({**answer, "calls": calls}), file=answers, flush=True)


main()
