"""The same as record.py for people who use mitmproxy (https://mitmproxy.org):

    mitmdump -q -s mitm_record.py --mode reverse:http://127.0.0.1:8000 --listen-host 127.0.0.1 -p 8900

The transcript is session.jsonl in the current folder, or the file that the variable SESSION names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RECORDED = ("/chat/completions", "/messages", "/responses")


def request(flow: Any) -> None:
    """Write a request to the transcript."""
    asked = flow.request
    if asked.method == "POST" and asked.path.partition("?")[0].endswith(RECORDED):
        file = Path(os.environ.get("SESSION", "session.jsonl"))
        file.touch(mode=0o600)
        with file.open("a") as out:
            out.write(json.dumps({"request": json.loads(asked.get_text())}) + "\n")


def responseheaders(flow: Any) -> None:
    """Hand every answer back as it comes, so that the agent sees tokens at once."""
    flow.response.stream = True
