"""Rendering one compiled template, and finding what wrote a character of the result.

What a template gets besides its messages is what `apply_chat_template` of transformers 5.24 gives it; see
docs/rendering.md. Everything here runs either in this process, under bounds.run, or in a killable child
(isolation.py).
"""

from __future__ import annotations

import traceback
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from types import FrameType, GeneratorType
from typing import Any, Literal

from jinja2 import Template, nodes
from jinja2.utils import Namespace

from ..errors import RenderError, RenderLimit
from . import continuation
from .jinja import clock, environment

Profile = Literal["transformers", "raw"]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
_LONGEST_MESSAGE = 100_000
#: Levels of a syntax tree; a deeper one cannot be compiled within Python's default recursion limit.
_MOST_LEVELS = 400


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one render.

    Attributes:
        seconds: wall time.
        characters: length of the output.
        bytes: memory of the child process that renders a template which is not known to be bounded.
    """

    seconds: float = 10.0
    characters: int = 64_000_000
    bytes: int = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """One conversation to render: what `apply_chat_template` takes.

    Attributes:
        messages: OpenAI chat messages.
        tools: the tool list or None.
        variables: special tokens and, over them, the request's chat-template kwargs.
        add_generation_prompt: whether the prompt ends with the opening of an assistant turn.
        continue_final_message: whether the prompt is cut where the last message's content ends, or the field
            of this name.
        now: the clock that `strftime_now` shows; None for the local time.
        profile: `transformers`, or `raw` for the environment alone with the messages as given.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool | _Asked = True
    continue_final_message: bool | str = False
    now: datetime | None = None
    profile: Profile = "transformers"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of output that the template wrote in one piece.

    Attributes:
        start: offset of its first character in the prompt.
        end: offset after its last character.
        messages: indices of the messages that the template's local variables held, innermost scope last.
        tools: whether a local variable held a tool of the tool list.
        line: line of the template source, counted from 1, or None.
    """

    start: int
    end: int
    messages: tuple[int, ...]
    tools: bool
    line: int | None


def parse_template(text: str) -> nodes.Template:
    """Parse the source text of a template.

    Raises:
        RenderError: it is not valid Jinja, or nested too deeply.
    """
    try:
        tree = environment().parse(text)
    except Exception as error:
        raise as_render_error(error) from error
    level: list[nodes.Node] = [tree]
    for _ in range(_MOST_LEVELS):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return tree
    raise RenderError("RecursionError", "the template is nested too deeply", level[0].lineno)


def compile_template(tree: nodes.Template) -> Template:
    """Compile a parsed template.

    Raises:
        RenderError: the template uses a filter or test that does not exist, or is nested too deeply.
    """
    try:
        return environment().compile_tree(tree)
    except Exception as error:
        raise as_render_error(error) from error


def render(template: Template, job: Job, most: int) -> str:
    """Render a conversation.

    Args:
        template: the compiled template.
        job: the conversation.
        most: longest output, in characters.

    Raises:
        RenderError: with the kind, text and template line of whatever the template raised.
    """
    return render_and_locate(template, job, most, None)[0]


def render_and_locate(template: Template, job: Job, most: int, text: str | None) -> tuple[str, int | None]:
    """Render a conversation, and find the line that first writes a text, at the cost of the render alone.

    Args:
        template: the compiled template.
        job: the conversation.
        most: longest output, in characters.
        text: what to look for within single chunks.

    Returns:
        The prompt, and the line of the template source; None where no single chunk holds the text.

    Raises:
        RenderError: as `render`.
    """
    line = None
    with _running(template, job) as (chunks, _):
        parts: list[str] = []
        size = 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise RenderLimit(f"the template wrote more than {most:,} characters")
            if text is not None and text in chunk:
                line, text = _line(template, chunks), None
        prompt = "".join(parts)
        if job.continue_final_message:
            last = _as_passed(job.messages[-1], job.profile)
            prompt = continuation.cut(prompt, last, _continued_field(job))
        return prompt, line


class _Asked:
    """Stands for a true `add_generation_prompt`, and notes what was written when it was first asked."""

    def __init__(self, written: list[str]) -> None:
        self.chunks: int | None = None
        self._written = written

    def __bool__(self) -> bool:
        if self.chunks is None:
            self.chunks = len(self._written)
        return True


def render_with_body(template: Template, job: Job, most: int) -> tuple[str, int]:
    """Render a conversation with its generation prompt, and tell the length of what comes before that.

    Only for templates of which `prompt_end.generation_prompt_ends` is true.

    Raises:
        RenderError: as `render`.
    """
    parts: list[str] = []
    asked = _Asked(parts)
    with _running(template, replace(job, add_generation_prompt=asked)) as (chunks, _):
        size = 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise RenderLimit(f"the template wrote more than {most:,} characters")
    return "".join(parts), sum(map(len, parts[: asked.chunks]))


def chunk_at(template: Template, job: Job, offset: int) -> Chunk:
    """Find the chunk that covers a character of what `render` returns, and what the template held then.

    Costs at most one more render. Records nothing before the chunk: reading line numbers and local variables
    at every chunk would double or treble the time.

    Args:
        template: the compiled template.
        job: the conversation, as it was rendered.
        offset: offset of the character in the prompt.

    Raises:
        IndexError: the prompt is not that long.
    """
    with _running(template, job) as (chunks, ids):
        start = 0
        for chunk in chunks:
            end = start + len(chunk)
            if offset < end:
                frame = _innermost_frame(chunks)
                bound = list(_bindings(frame, ids)) if frame else []
                return Chunk(
                    start,
                    end,
                    tuple(key for key in bound if key >= 0),
                    any(key < 0 for key in bound),
                    _line(template, chunks),
                )
            start = end
    raise IndexError(f"the prompt has no character {offset}")


@contextmanager
def _running(template: Template, job: Job) -> Iterator[tuple[Iterator[str], dict[int, int]]]:
    """Start a template's generator with the clock pinned; turn whatever it raises into a RenderError.

    Yields the generator, and the indices of the message and tool objects that it sees (`_variables`).
    """
    token = clock.set(job.now)
    try:
        variables, ids = _variables(job)
        yield template.root_render_func(template.new_context(variables)), ids
    except Exception as error:
        raise as_render_error(error) from error
    finally:
        clock.reset(token)


def _variables(job: Job) -> tuple[dict[str, Any], dict[int, int]]:
    """Return the template's variables, and for each message and tool object its index (tools: -1 - index)."""
    messages = [_as_passed(message, job.profile) for message in job.messages]
    fixed = {"dict": dict, "namespace": Namespace} if job.profile == "raw" else {}
    if job.continue_final_message:
        field = _continued_field(job)
        continuation.mark(messages[-1], field, REASONING_KEYS if field in REASONING_KEYS else (field,))
    tools = None if job.tools is None else [plain(tool) for tool in job.tools]
    ids = {id(message): index for index, message in enumerate(messages)}
    ids |= {id(tool): -1 - index for index, tool in enumerate(tools or ())}
    variables = {
        "documents": None,
        **fixed,
        **{name: plain(value) for name, value in job.variables.items()},
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": job.add_generation_prompt,
    }
    return variables, ids


def _as_passed(message: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """Copy a message, for transformers without None values and with reasoning under its usual names."""
    copy: dict[str, Any] = plain(message)
    if profile == "raw":
        return copy
    copy = {key: value for key, value in copy.items() if value is not None}
    for key in REASONING_KEYS:
        if key in copy:
            return {"thinking": copy[key], **copy, "reasoning_content": copy[key]}
    return copy


_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """Copy a value as plain JSON types, so that no object is shared and none has methods of its own."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {
            key if type(key) is str else plain(key): item if type(item) in _SCALARS else plain(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if type(item) in _SCALARS else plain(item) for item in value]
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    return f"<{type(value).__name__}>"


def _continued_field(job: Job) -> str:
    return job.continue_final_message if isinstance(job.continue_final_message, str) else "content"


def _line(template: Template, generator: Any) -> int | None:
    """Return the template line at which the generator stands."""
    frame = _innermost_frame(generator)
    if frame is None:
        return None
    code_lines, template_lines = _line_table(template)
    place = bisect_right(code_lines, frame.f_lineno) - 1
    return template_lines[place] if place >= 0 else 1


@lru_cache(maxsize=8)
def _line_table(template: Template) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the lines of the compiled code at which another template line begins, and those template lines.

    As `Template.get_corresponding_lineno` reads them, which takes the table apart anew at each call.
    """
    pairs = template.debug_info
    return tuple(code for _, code in pairs), tuple(line for line, _ in pairs)


def _innermost_frame(generator: Any) -> FrameType | None:
    while isinstance(generator.gi_yieldfrom, GeneratorType):
        generator = generator.gi_yieldfrom
    frame: FrameType | None = generator.gi_frame
    return frame


def _bindings(frame: FrameType, ids: Mapping[int, int]) -> Iterator[int]:
    for value in frame.f_locals.values():
        if (key := ids.get(id(value))) is not None:
            yield key


def as_render_error(error: Exception) -> RenderError:
    """Describe an exception that a template raised, with the template line where one is known."""
    if isinstance(error, RenderError):
        return error
    line: int | None = getattr(error, "lineno", None)
    for frame, frame_line in traceback.walk_tb(error.__traceback__):
        template = frame.f_globals.get("__jinja_template__")
        if template is not None:
            line = template.get_corresponding_lineno(frame_line)
    if isinstance(error, RecursionError):
        return RenderError("RecursionError", "the template is nested too deeply", line)
    if isinstance(error, MemoryError):
        return RenderLimit("the template used more memory than it may")
    return RenderError(type(error).__name__, str(error)[:_LONGEST_MESSAGE], line)
