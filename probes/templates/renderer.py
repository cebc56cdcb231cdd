"""This process's side of the one in which templates are parsed and rendered (worker/).

Several tasks travel in one message. What the worker has is not sent again: templates, and the messages, tools
and variables of conversations, which are known by numbers. A worker that dies is replaced; the task that it
died of gets a RenderLimit, and the others of its message go on.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import RenderError, RenderLimit
from . import wire
from .rendering import Job, Limits
from .worker_process import WorkerDied, WorkerProcess, does_not_start

MODULE = "tplaudit.probes.templates.worker"
#: Templates that the worker keeps.
_MOST_TEMPLATES = 24
#: Bytes of messages, tools and variables that the worker keeps, and how many objects are known as sent.
_MOST_BYTES = 64_000_000
_MOST_OBJECTS = 200_000
#: Longest value, in bytes, that is known by itself and not by its hash.
_LONGEST_KEY = 256

_FOR_EVER = (1e9, 1 << 62)


@dataclass(slots=True)
class RenderBudget:
    """What the renders of one template may still take together; counted down.

    Attributes:
        seconds: CPU time of slow renders, beyond what a render of such a length may take, and all that a
            render may take for each that exceeded a bound.
        characters: of prompts that are much longer than their conversations.
    """

    seconds: float
    characters: int

    @property
    def spent(self) -> bool:
        """Whether it is used up."""
        return self.seconds < 0 or self.characters < 0


@dataclass(frozen=True, slots=True)
class WiredJob:
    """A conversation as it is sent: its messages, tools and variables are numbers that the worker knows.

    Attributes:
        fields: what is sent; no other conversation has the same.
        memory: which worker knows the numbers, and since when.
    """

    fields: tuple[Any, ...]
    memory: int

    @property
    def prompted(self) -> tuple[Any, ...]:
        """What is sent for the same conversation with a generation prompt."""
        return (*self.fields[:3], True, *self.fields[4:])


@dataclass(frozen=True, slots=True)
class Task:
    """One thing that the worker is asked.

    Attributes:
        kind: `prompt`, `chunk`, or a question about the source text.
        job: the conversation, for the first two.
        arguments: what else the worker gets.
        wired: the conversation as it is sent, where that is known already.
    """

    kind: str
    job: Job | None = None
    arguments: tuple[Any, ...] = ()
    wired: WiredJob | None = None


class _Sent:
    """The numbers by which the worker knows values that were sent to it."""

    def __init__(self) -> None:
        self._next = 0
        self._by_object: dict[int, tuple[Any, int]] = {}
        self._by_bytes: dict[bytes, int] = {}
        self._held: set[int] = set()
        self._bytes = 0
        self.memory = 0
        self.new: list[tuple[int, bytes]] = []

    @property
    def full(self) -> bool:
        """Whether the worker should forget all that it has."""
        return self._bytes > _MOST_BYTES or len(self._by_object) > _MOST_OBJECTS

    def forget(self) -> None:
        """Forget all values. Their numbers are not given to others."""
        self._by_object.clear()
        self._by_bytes.clear()
        self.send_again()

    def send_again(self) -> None:
        """Keep the numbers, for a worker that has nothing yet."""
        self.memory += 1
        self._held.clear()
        self._bytes = 0
        self.new = []

    def number(self, value: Any, lasting: bool) -> int:
        """Return a value's number; equal values have the same. It is sent if the worker does not have it."""
        if lasting:
            known = self._by_object.get(id(value))
            if known is not None and known[0] is value and known[1] in self._held:
                return known[1]
        data = wire.dumps(value)
        key = data if len(data) <= _LONGEST_KEY else hashlib.sha256(data).digest()
        number = self._by_bytes.get(key)
        if number is None:
            self._next += 1
            number = self._by_bytes[key] = self._next
        if number not in self._held:
            self._held.add(number)
            self.new.append((number, data))
            self._bytes += len(data)
        if lasting:
            self._by_object[id(value)] = (value, number)
        return number

    def wired(self, job: Job) -> tuple[Any, ...]:
        """Return a conversation as it is sent."""
        number, lasting = self.number, job.lasting
        continued = job.continue_final_message
        return (
            tuple([number(each, lasting) for each in job.messages]),
            None if job.tools is None else tuple([number(each, lasting) for each in job.tools]),
            number(job.variables, False),
            job.add_generation_prompt,
            continued if isinstance(continued, str) else "content" if continued else None,
            None if job.now is None else job.now.isoformat(),
            job.profile,
        )


class Renderer:
    """The worker with what it knows. One serves this whole process; threads take turns."""

    def __init__(self) -> None:
        self._process = WorkerProcess(MODULE)
        self._lock = threading.RLock()
        self._generation = 0
        self._sent = _Sent()
        self._templates: OrderedDict[str, int] = OrderedDict()
        self._next_template = 0
        self._forget = False
        self._answered = False

    def start(self) -> None:
        """Start the worker, so that it is ready when it is needed; returns at once."""
        with self._lock:
            self._process.start()

    def close(self) -> None:
        """End the worker; the next task starts another."""
        with self._lock:
            self._process.close()

    @property
    def pid(self) -> int | None:
        """The worker's process id; None where none runs."""
        return self._process.pid

    def wired(self, job: Job) -> WiredJob:
        """Return a job as it is sent.

        Raises:
            RenderError: the conversation is nested too deeply.
        """
        with self._lock:
            try:
                return WiredJob(self._sent.wired(job), self._sent.memory)
            except RecursionError:
                raise _too_deep() from None

    def ask(self, text: str, kind: str, *arguments: Any, limits: Limits) -> Any:
        """Ask something about a source text.

        Raises:
            RenderError: it is not valid Jinja; RenderLimit where finding out took more than it may.
        """
        (answer,) = self.do(text, [Task(kind, None, arguments)], limits)
        if isinstance(answer, RenderError):
            raise answer
        return answer

    def do(
        self, text: str, tasks: Sequence[Task], limits: Limits, budget: RenderBudget | None = None
    ) -> list[Any]:
        """Do several tasks with one template, each as if it were alone.

        Args:
            text: the source text.
            tasks: what to do.
            limits: bounds of each task.
            budget: what they may take together; what they took is counted off.

        Returns:
            For each task its result; or the RenderError that the template raised, a RenderLimit where a bound
            was exceeded; None for tasks that were not done because the budget is spent.
        """
        results: list[Any] = [None] * len(tasks)
        pending = list(range(len(tasks)))
        starts = 0
        with self._lock:
            while pending and not (budget and budget.spent):
                done = 0
                try:
                    for answer in self._exchange(text, [tasks[each] for each in pending], limits, budget):
                        results[pending[done]] = _result(answer, limits, budget)
                        done += 1
                        self._answered = True
                except WorkerDied as death:
                    if death.task is None:  # perhaps something ended it while it had nothing to do
                        starts += 1
                        if starts == 1:
                            continue
                        if not self._answered:
                            raise does_not_start(MODULE) from None
                    died = pending[death.task or 0]
                    results[died] = RenderLimit(death.why)
                    if budget:
                        budget.seconds -= limits.seconds
                    # Answers that were waiting to be sent died with it.
                    pending = [each for each in pending[done:] if each != died]
                    continue
                except _TooDeep as error:
                    results[pending.pop(error.task)] = _too_deep()
                    continue
                break
        return results

    def _exchange(
        self, text: str, tasks: Sequence[Task], limits: Limits, budget: RenderBudget | None
    ) -> Iterator[Any]:
        self._renew()
        if self._sent.full:
            self._sent.forget()
            self._forget = True
        wired: list[tuple[Any, ...]] = []
        for number, task in enumerate(tasks):
            try:
                if task.job is None:
                    wired.append(())
                elif task.wired is not None and task.wired.memory == self._sent.memory:
                    wired.append((task.wired.fields,))
                else:
                    wired.append((self._sent.wired(task.job),))
            except RecursionError:
                raise _TooDeep(number) from None
        template, new, dropped = self._template(text)
        message = wire.dumps(
            (
                (limits.seconds, limits.characters, limits.bytes),
                _FOR_EVER if budget is None else (budget.seconds, budget.characters),
                self._forget,
                self._sent.new,
                new,
                dropped,
                [
                    (task.kind, template, *job, *task.arguments)
                    for task, job in zip(tasks, wired, strict=True)
                ],
            )
        )
        self._forget = False
        self._sent.new = []
        return self._process.exchange(message, len(tasks), limits.seconds, limits.bytes)

    def _template(self, text: str) -> tuple[int, list[tuple[int, str]], list[int]]:
        """Return a template's number, and what the worker has to be told: its text, and which to drop."""
        number = self._templates.get(text)
        if number is not None:
            self._templates.move_to_end(text)
            return number, [], []
        self._next_template += 1
        number = self._templates[text] = self._next_template
        full = len(self._templates) > _MOST_TEMPLATES
        return number, [(number, text)], [self._templates.popitem(last=False)[1]] if full else []

    def _renew(self) -> None:
        """Start the worker if need be; a new one knows nothing."""
        self._process.start()
        if self._process.generation != self._generation:
            self._generation = self._process.generation
            self._forget = False
            self._sent.send_again()
            self._templates.clear()


class _TooDeep(Exception):
    """A task's conversation cannot be sent."""

    def __init__(self, task: int) -> None:
        self.task = task


def _too_deep() -> RenderError:
    return RenderError("RecursionError", "the conversation is nested too deeply")


def _result(answer: Any, limits: Limits, budget: RenderBudget | None) -> Any:
    if answer is None:
        return None
    slow, inflated, succeeded, value = answer
    if budget:
        budget.seconds -= slow
        budget.characters -= inflated
    if succeeded:
        return value
    kind, message, line, limited = value
    if not limited:
        return RenderError(kind, message, line)
    if budget:
        budget.seconds -= limits.seconds
    return RenderLimit(message)


renderer = Renderer()
