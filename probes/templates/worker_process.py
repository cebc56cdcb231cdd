"""The parent's side of the killable child that renders templates which are not known to be bounded."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, fields, replace
from typing import IO, Any

from ..errors import RenderError, RenderLimit
from .rendering import Chunk, Job, Limits, plain
from .worker import OUT_OF_MEMORY


class RenderChild:
    """One child process, started when first needed and again after it had to be killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def render(self, template: str, job: Job, limits: Limits, spent: float = 0.0) -> str:
        """Render in the child; as `rendering.render`.

        Args:
            template: the source text.
            job: the conversation.
            limits: bounds of the render.
            spent: seconds of it that are used up.

        Raises:
            RenderError: what the template raised; RenderLimit where it exceeded its time, memory or output.
        """
        return str(self._ask(template, job, limits, spent, None)["text"])

    def chunk_at(self, template: str, job: Job, offset: int, limits: Limits, spent: float = 0.0) -> Chunk:
        """Find a chunk in the child; as `rendering.chunk_at` and, for `limits` and `spent`, `render`."""
        answer = self._ask(template, job, limits, spent, offset)
        if "chunk" not in answer:
            raise IndexError(answer["index"])
        return Chunk(**{**answer["chunk"], "messages": tuple(answer["chunk"]["messages"])})

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(
        self, template: str, job: Job, limits: Limits, spent: float, offset: int | None
    ) -> dict[str, Any]:
        asked = {field.name: getattr(job, field.name) for field in fields(job)}
        asked["now"] = job.now.isoformat() if job.now else None
        left = replace(limits, seconds=max(limits.seconds - spent, 0.001))
        line = json.dumps(
            {"template": template, "job": asked, "offset": offset, "limits": asdict(left)}, default=plain
        )
        with self._lock:
            reply = self._exchange(line)
            if not reply.endswith("\n"):
                raise self._death(limits)
        answer: dict[str, Any] = json.loads(reply)
        if "error" in answer:
            kind, message, where = answer["error"]
            raise RenderLimit(message) if answer["limit"] else RenderError(kind, message, where)
        return answer

    def _exchange(self, line: str) -> str:
        stdin, stdout = self._pipes()
        try:
            stdin.write(line + "\n")
            stdin.flush()
            return stdout.readline()
        except BrokenPipeError:
            return ""
        except BaseException:  # interrupted: what the child still writes must not answer the next job
            self.close()
            raise

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tplaudit.probes.templates.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C reaches this process alone, which then closes the child
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _death(self, limits: Limits) -> RenderLimit:
        assert self._process is not None
        code = self._process.wait()
        self.close()
        if code == -signal.SIGALRM:
            return RenderLimit(f"the template did not finish within {limits.seconds:g} s")
        if code in (OUT_OF_MEMORY, -signal.SIGKILL):
            return RenderLimit(f"the template used more than {limits.bytes / 1e9:g} GB of memory")
        return RenderLimit(f"the process that rendered the template ended with code {code}")


child = RenderChild()
atexit.register(child.close)
