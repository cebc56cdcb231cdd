"""The process that templates are confined to: `python -m tplaudit.probes.templates.worker`.

Reads messages from stdin (renderer.py has their form) and answers each task of one in turn. A task that
exceeds its CPU time ends the process: the timer's default action works even in the middle of one long C call,
where no Python code runs. So does one that exceeds the memory. The process ends with its parent: stdin ends.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from jinja2 import Template, nodes

from ...errors import RenderError, RenderLimit
from .. import wire
from ..serving import Serving
from . import content_loops, names
from .evaluation import (
    Conversation,
    as_passed,
    as_render_error,
    chunk_at,
    compile_bare,
    compile_for_llamacpp,
    compile_template,
    in_order,
    parse_template,
    render,
    render_bare,
)
from .prompt_end import generation_prompt_ends
from .skipped_branch import skipped_branch_line

#: CPU seconds that a render may take without counting as slow, and those for each character that it reads
#: or writes. A prompt of 200,000 tokens takes a tenth of what that comes to.
_FREE_SECONDS = 0.05
_FREE_SECONDS_PER_CHARACTER = 1e-6
#: Characters from which a prompt is compared with its conversation; it may be so many times as long.
_LONG_PROMPT = 1_000_000
_MOST_TIMES_AS_LONG = 10
#: Objects after which Python looks for cycles. Trees of templates are large, and memory has a limit.
_COLLECT_AFTER = 20_000


Result = TypeVar("Result")


class _Source:
    """One template, parsed and compiled at most once, when first needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._error: RenderError | None = None

    @cached_property
    def tree(self) -> nodes.Template:
        return self._once(lambda: parse_template(self.text))

    @cached_property
    def sections(self) -> list[list[nodes.Node]]:
        """All nodes of each of the tree's outermost statements; also makes sure that it is not too deep."""
        return self._once(lambda: [in_order(each) for each in self.tree.body])

    @cached_property
    def nodes(self) -> list[nodes.Node]:
        return [self.tree, *chain.from_iterable(self.sections)]

    @cached_property
    def compiled(self) -> Template:
        self.sections  # noqa: B018 - a tree that is too deep would end the process
        return self._once(lambda: compile_template(self.tree))

    @cached_property
    def bare(self) -> Template:
        return compile_bare(self.text)

    @cached_property
    def compiled_for_llamacpp(self) -> Template:
        self.sections  # noqa: B018 - a tree that is too deep would end the process
        return self._once(lambda: compile_for_llamacpp(self.text))

    def compiled_for(self, conversation: Conversation) -> Template:
        """Return the compiled template that a conversation is rendered with."""
        return self.compiled_for_llamacpp if conversation.llamacpp else self.compiled

    @cached_property
    def prompt_ends(self) -> bool:
        return self.ask(lambda: generation_prompt_ends(self.tree, self.sections))

    def ask(self, question: Callable[[], Result]) -> Result:
        """Ask something of the tree."""
        self.sections  # noqa: B018 - raises where the tree cannot be walked
        try:
            return question()
        except MemoryError:
            raise
        except Exception as error:
            raise as_render_error(error) from error

    def _once(self, make: Callable[[], Result]) -> Result:
        if self._error is not None:
            raise self._error
        try:
            return make()
        except RenderError as error:
            self._error = error
            raise


class Worker:
    """What the process holds: templates, and the messages, tools and variables that were sent.

    Args:
        serving: how tasks are bounded, and known to the parent.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._templates: dict[int, _Source] = {}
        self._values: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._passed: dict[int, dict[str, Any]] = {}
        self._bytes = 0

    def answer(self, message: bytes) -> Iterator[tuple[Any, ...] | None]:
        """Do the tasks of a message; yield an answer to each, None where the budget is spent before."""
        limits, (slow_left, inflated_left), forget, values, templates, dropped, tasks = wire.loads(message)
        seconds, characters, memory = limits
        self._limit_memory(memory)
        if forget:
            for held in (self._values, self._sizes, self._passed):
                held.clear()
        for number, data in values:
            self._values[number] = wire.plain(wire.loads(data))
            self._sizes[number] = len(data)
        for number in dropped:
            del self._templates[number]
        for number, text in templates:
            self._templates[number] = _Source(text)

        def done() -> Iterator[tuple[Any, ...] | None]:
            nonlocal slow_left, inflated_left
            for number, task in enumerate(tasks):
                if slow_left < 0 or inflated_left < 0:
                    yield None
                    continue
                with self._serving.task(number, seconds):
                    answer = self._timed(task, characters)
                slow_left -= answer[0] + (seconds if _limited(answer) else 0)
                inflated_left -= answer[1]
                yield answer

        return done()

    def _timed(self, task: tuple[Any, ...], characters: int) -> tuple[Any, ...]:
        """Do one task: what it is charged in seconds and characters, whether it succeeded, and the result."""
        started = time.process_time()
        read = 0
        inflated = 0
        try:
            kind, number, *rest = task
            source = self._templates[number]
            if "compiled" not in source.__dict__:
                read += len(source.text)
            value = self._DO[kind](self, source, characters, *rest)
            if kind in ("prompt", "slice"):
                given = self._given(rest[0])
                written = len(value[0]) if kind == "prompt" else value[0]
                read += written + given
                if written >= _LONG_PROMPT and written > _MOST_TIMES_AS_LONG * given:
                    inflated = written
            elif kind == "chunk":
                read += self._given(rest[0])
            outcome: tuple[Any, ...] = (True, value)
        except RenderError as error:
            outcome = (False, (error.kind, error.message, error.line, isinstance(error, RenderLimit)))
        free = _FREE_SECONDS + _FREE_SECONDS_PER_CHARACTER * read
        return (max(time.process_time() - started - free, 0.0), inflated, *outcome)

    def _given(self, wired: tuple[Any, ...]) -> int:
        messages, tools, variables, *_ = wired
        return sum(self._sizes[each] for each in (*messages, *(tools or ()), variables))

    def _conversation(self, wired: tuple[Any, ...]) -> Conversation:
        messages, tools, variables, prompted, continued, now, profile = wired
        raw = profile != "transformers"
        values = self._values
        given = [values[each] for each in messages]
        return Conversation(
            messages=given,
            passed=given if raw else [self._as_passed(each) for each in messages],
            tools=None if tools is None else [values[each] for each in tools],
            variables=values[variables],
            add_generation_prompt=prompted,
            continued=continued,
            now=None if now is None else datetime.fromisoformat(now),
            raw=raw,
            llamacpp=profile == "llama.cpp",
        )

    def _as_passed(self, number: int) -> dict[str, Any]:
        passed = self._passed.get(number)
        if passed is None:
            passed = self._passed[number] = as_passed(self._values[number])
        return passed

    def _prompt(
        self, source: _Source, characters: int, wired: tuple[Any, ...], body: bool, text: str | None
    ) -> Any:
        conversation = self._conversation(wired)
        compiled = source.compiled_for(conversation)
        return render(compiled, conversation, characters, text, body and source.prompt_ends)

    def _slice(self, source: _Source, characters: int, wired: tuple[Any, ...], start: int, end: int) -> Any:
        conversation = self._conversation(wired)
        prompt, _, _ = render(source.compiled_for(conversation), conversation, characters)
        return len(prompt), prompt[start:end]

    def _chunk(self, source: _Source, _: int, wired: tuple[Any, ...], offset: int) -> Any:
        conversation = self._conversation(wired)
        return chunk_at(source.compiled_for(conversation), conversation, offset)

    def _bare(self, source: _Source, characters: int, turns: list[tuple[str, str]]) -> str:
        return render_bare(source.bare, turns, characters)

    def _content_loops(self, source: _Source, _: int) -> Any:
        return source.ask(lambda: (content_loops.followed(source.nodes), content_loops.named(source.nodes)))

    def _check(self, source: _Source, _: int) -> bool:
        empty = not source.tree.body
        source.compiled  # noqa: B018 - raises where it cannot be compiled
        return empty

    def _names(self, source: _Source, _: int) -> Any:
        return source.ask(lambda: (names.inputs(source.nodes), names.compared_texts(source.nodes)))

    def _undeclared(self, source: _Source, _: int) -> Any:
        return source.ask(lambda: names.undeclared(source.tree))

    def _prompt_ends(self, source: _Source, _: int) -> bool:
        return source.prompt_ends

    def _skipped_branch(self, source: _Source, _: int, role: str) -> Any:
        return source.ask(lambda: skipped_branch_line(source.nodes, role))

    _DO: dict[str, Callable[..., Any]] = {  # noqa: RUF012 - never changed
        "prompt": _prompt,
        "slice": _slice,
        "chunk": _chunk,
        "bare": _bare,
        "check": _check,
        "content-loops": _content_loops,
        "names": _names,
        "undeclared": _undeclared,
        "prompt-ends": _prompt_ends,
        "skipped-branch": _skipped_branch,
    }

    def _limit_memory(self, limit: int) -> None:
        if limit != self._bytes:
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
            self._bytes = limit


def _limited(answer: tuple[Any, ...]) -> bool:
    """Tell whether a task exceeded a bound, without ending the process."""
    return not answer[2] and bool(answer[3][3])


def main() -> None:
    """Answer messages until stdin ends."""
    serving = Serving()
    worker = Worker(serving)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    serving.run(worker.answer)


if __name__ == "__main__":
    main()
