"""The child process for templates that may not be bounded: `python -m tplaudit.probes.templates.worker`.

Reads one JSON job a line from stdin and answers with one JSON line. A job that exceeds its time ends the
process: the alarm's default action works even in the middle of one long C call, where no Python code runs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import asdict
from datetime import datetime
from typing import Any

from jinja2 import Template

from ..errors import RenderError, RenderLimit
from .rendering import Job, Limits, chunk_at, compile_template, parse_template, render

#: Exit code after which the parent says that memory ran out.
OUT_OF_MEMORY = 77


def main() -> None:
    """Answer jobs until stdin ends."""
    templates: dict[str, Template] = {}
    for line in sys.stdin:
        job = json.loads(line)
        limits = Limits(**job["limits"])
        _limit_memory(limits.bytes)
        signal.setitimer(signal.ITIMER_REAL, limits.seconds)
        try:
            answer = json.dumps(_answer(job, limits, templates))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _answer(job: dict[str, Any], limits: Limits, templates: dict[str, Template]) -> dict[str, Any]:
    text, fields, offset = job["template"], job["job"], job["offset"]
    now = fields.pop("now")
    conversation = Job(**fields, now=datetime.fromisoformat(now) if now else None)
    try:
        if text not in templates:
            templates[text] = compile_template(parse_template(text))
        if offset is None:
            return {"text": render(templates[text], conversation, limits.characters)}
        return {"chunk": asdict(chunk_at(templates[text], conversation, offset))}
    except RenderError as error:
        return {"error": [error.kind, error.message, error.line], "limit": isinstance(error, RenderLimit)}
    except IndexError as error:
        return {"index": str(error)}


def _limit_memory(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if sys.platform == "darwin" and not _watching:  # macOS accepts the limit and does not enforce it
        _watching.append(threading.Thread(target=_watch_memory, args=(limit,), daemon=True))
        _watching[0].start()


_watching: list[threading.Thread] = []


def _watch_memory(limit: int) -> None:
    while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < limit:  # bytes on macOS
        time.sleep(0.02)
    os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main()
