"""The process that llama.cpp's engine is confined to: `python -m tplaudit.probes.templates.llamacpp_worker`.

The engine bounds a render by fuel and linear memory of its own; what it does beside that, such as compiling
itself, is bounded as templates are (serving.py). Its memory is watched by the parent, since WebAssembly takes
far more addresses than memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from . import wire
from .llamacpp import load_engine
from .serving import Serving


def main() -> None:
    """Answer messages until stdin ends: the CPU seconds of a task, and the texts with their variables."""
    serving = Serving()
    engine = load_engine()

    def answer(message: bytes) -> Iterator[tuple[Any, ...]]:
        seconds, tasks = wire.loads(message)
        for number, (text, variables) in enumerate(tasks):
            started = time.process_time()
            with serving.task(number, seconds):
                result = engine.render(text, variables)
            took = time.process_time() - started
            yield (
                took,
                result.error,
                result.text,
                result.extra.get("caps"),
                bool(result.extra.get("normalized")),
            )

    serving.run(answer)


if __name__ == "__main__":
    main()
