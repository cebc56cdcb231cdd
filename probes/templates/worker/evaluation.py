"""Parsing, compiling and rendering one template, and finding what wrote a character of the result."""

from __future__ import annotations

import copy
import traceback
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import FrameType, GeneratorType
from typing import Any

from jinja2 import Template, nodes
from jinja2.utils import Namespace

from ...errors import RenderError, RenderLimit
from ..rendering import REASONING_KEYS
from . import continuation
from .environment import bare_environment, changes, clock, environment

_LONGEST_MESSAGE = 100_000
#: Levels of a syntax tree; a deeper one cannot be compiled within Python's default recursion limit.
_MOST_LEVELS = 400


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as the parent process sent it: plain values, which no render changes.

    Attributes:
        messages: OpenAI chat messages.
        passed: the same as the profile passes them on (`as_passed`).
        tools: the tool list or None.
        variables: special tokens and chat-template kwargs.
        add_generation_prompt: whether the prompt ends with the opening of an assistant turn.
        continued: the field of the last message that is continued; None for none.
        now: the clock.
        raw: whether `dict` and `namespace` are Python's and Jinja's own.
        llamacpp: whether the template runs as in llama.cpp's engine, which lets it change lists.
    """

    messages: Sequence[dict[str, Any]]
    passed: Sequence[dict[str, Any]]
    tools: Sequence[Any] | None
    variables: Mapping[str, Any]
    add_generation_prompt: Any
    continued: str | None
    now: datetime | None
    raw: bool
    llamacpp: bool


def parse_template(text: str) -> nodes.Template:
    """Parse the source text of a template.

    Raises:
        RenderError: it is not valid Jinja, or nested too deeply.
    """
    try:
        tree = environment().parse(text)
    except Exception as error:
        raise as_render_error(error) from error
    return tree


def in_order(node: nodes.Node) -> list[nodes.Node]:
    """Return all nodes of a syntax tree, each before what is within it.

    Raises:
        RenderError: the tree is nested too deeply.
    """
    found = []
    open_ = [iter((node,))]
    while open_:
        child = next(open_[-1], None)
        if child is None:
            open_.pop()
            continue
        found.append(child)
        open_.append(child.iter_child_nodes())
        if len(open_) > _MOST_LEVELS:
            raise RenderError("RecursionError", "the template is nested too deeply", child.lineno)
    return found


def compile_for_llamacpp(text: str) -> Template:
    """Compile a template, which was parsed before, with the manners of llama.cpp's engine."""
    try:
        llama = environment("llama.cpp")
        return llama.compile_tree(llama.parse(text))
    except Exception as error:
        raise as_render_error(error) from error


def compile_template(tree: nodes.Template) -> Template:
    """Compile a parsed template.

    Raises:
        RenderError: the template uses a filter or test that does not exist, or is nested too deeply.
    """
    try:
        return environment().compile_tree(tree)
    except Exception as error:
        raise as_render_error(error) from error


def compile_bare(text: str) -> Template:
    """Parse and compile the source text of a template for `render_bare`.

    Raises:
        RenderError: it needs a tag, filter or test that transformers adds, or is nested too deeply.
    """
    try:
        tree = bare_environment().parse(text)
        in_order(tree)
        return bare_environment().compile_tree(tree)
    except Exception as error:
        raise as_render_error(error) from error


def render_bare(template: Template, turns: Sequence[tuple[str, str]], most: int) -> str:
    """Render turns of roles and texts with nothing else than `add_generation_prompt=False`.

    Raises:
        RenderError: see `render`.
    """
    messages = [{"role": role, "content": content} for role, content in turns]
    variables = {"messages": messages, "add_generation_prompt": False}
    parts: list[str] = []
    size = 0
    try:
        for chunk in template.root_render_func(template.new_context(variables)):
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise RenderLimit(f"too long: the template wrote more than {most:,} characters")
    except MemoryError:
        raise
    except Exception as error:
        raise as_render_error(error) from error
    return "".join(parts)


Place = tuple[int, int, int | None]


def render(
    template: Template, conversation: Conversation, most: int, text: str | None = None, body: bool = False
) -> tuple[str, int | None, Place | None]:
    """Render a conversation, and find what first writes a text, at the cost of the render alone.

    Args:
        template: the compiled template.
        conversation: the conversation.
        most: longest output, in characters.
        text: what to look for within single chunks.
        body: tell the length of what comes before the generation prompt; only for conversations that end with
            one, and for templates of which `prompt_end.generation_prompt_ends` is true.

    Returns:
        The prompt; the length of its body, where asked for; and the fields of a `rendering.WrittenAt`, None
        where no single chunk holds the text.

    Raises:
        RenderError: with the kind, text and template line of whatever the template raised.
    """
    place = None
    parts: list[str] = []
    asked = _Asked(parts) if body else None
    with _running(template, conversation, asked) as (chunks, _):
        size = 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise RenderLimit(f"too long: the template wrote more than {most:,} characters")
            if text is not None and text in chunk:
                place, text = (size - len(chunk), size, _line(template, chunks)), None
        prompt = "".join(parts)
        if conversation.continued is not None:
            prompt = continuation.cut(prompt, conversation.passed[-1], conversation.continued)
    return prompt, None if asked is None else sum(map(len, parts[: asked.chunks])), place


class _Asked:
    """Stands for a true `add_generation_prompt`, and notes what was written when it was first asked."""

    def __init__(self, written: list[str]) -> None:
        self.chunks: int | None = None
        self._written = written

    def __bool__(self) -> bool:
        if self.chunks is None:
            self.chunks = len(self._written)
        return True


def chunk_at(template: Template, conversation: Conversation, offset: int) -> tuple[Any, ...]:
    """Find the chunk that covers a character of what `render` returns, and what the template held then.

    Costs at most one more render. Records nothing before the chunk: reading line numbers and local variables
    at every chunk would double or treble the time.

    Args:
        template: the compiled template.
        conversation: the conversation, as it was rendered.
        offset: offset of the character in the prompt.

    Returns:
        The fields of a `rendering.Chunk`; none where the prompt is not that long.
    """
    with _running(template, conversation) as (chunks, ids):
        start = 0
        for chunk in chunks:
            end = start + len(chunk)
            if offset < end:
                frame = _innermost_frame(chunks)
                bound = list(_bindings(frame, ids)) if frame else []
                messages = tuple(key for key in bound if key >= 0)
                tools = any(key < 0 for key in bound)
                return start, end, messages, tools, _line(template, chunks), _is_literal(chunk, frame)
            start = end
    return ()


@contextmanager
def _running(
    template: Template, conversation: Conversation, asked: _Asked | None = None
) -> Iterator[tuple[Iterator[str], dict[int, int]]]:
    """Start a template's generator with the clock pinned; turn whatever it raises into a RenderError.

    Yields the generator, and the indices of the message and tool objects that it sees (`_variables`).
    """
    token = clock.set(conversation.now)
    changing = changes.set(conversation.llamacpp)
    try:
        variables, ids = _variables(conversation, asked)
        yield template.root_render_func(template.new_context(variables)), ids
    except MemoryError:
        raise
    except Exception as error:
        raise as_render_error(error) from error
    finally:
        clock.reset(token)
        changes.reset(changing)


def _variables(conversation: Conversation, asked: _Asked | None) -> tuple[dict[str, Any], dict[int, int]]:
    """Return the template's variables, and for each message and tool object its index (tools: -1 - index).

    Each message is an object of its own, by which it is known among a template's local variables. What it
    holds is shared where the sandbox lets no template change it.
    """
    copied = copy.deepcopy(conversation.passed) if conversation.llamacpp else conversation.passed
    messages = [dict(message) for message in copied]
    fixed = {"dict": dict, "namespace": Namespace} if conversation.raw else {}
    if conversation.continued is not None:
        field = conversation.continued
        messages[-1] = copy.deepcopy(messages[-1])
        continuation.mark(messages[-1], field, REASONING_KEYS if field in REASONING_KEYS else (field,))
    tools: list[Any] | None = None
    if conversation.tools is not None:
        tools = [copy.copy(tool) for tool in conversation.tools]
    ids = {id(message): index for index, message in enumerate(messages)}
    ids |= {id(tool): -1 - index for index, tool in enumerate(tools or ())}
    variables = {
        "documents": None,
        **fixed,
        **conversation.variables,
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": conversation.add_generation_prompt if asked is None else asked,
    }
    return variables, ids


def as_passed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as transformers passes it on: without None values, reasoning under its usual names."""
    passed = {key: value for key, value in message.items() if value is not None}
    for key in REASONING_KEYS:
        if key in passed:
            return {"thinking": passed[key], **passed, "reasoning_content": passed[key]}
    return passed


def _line(template: Template, generator: Any) -> int | None:
    """Return the template line at which the generator stands."""
    frame = _innermost_frame(generator)
    if frame is None:
        return None
    return template_line(template, frame.f_lineno)


def template_line(template: Template, code_line: int) -> int:
    """Return the line of a template's source from which a line of its compiled code was made."""
    code_lines, template_lines = _line_table(template)
    place = bisect_right(code_lines, code_line) - 1
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


def _is_literal(chunk: str, frame: FrameType | None) -> bool:
    """Tell whether a chunk is a literal of the template's code: the very object, not one that is equal.

    Python has one object for each text of one character, so nothing is said of those.
    """
    return frame is not None and len(chunk) > 1 and any(chunk is each for each in frame.f_code.co_consts)


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
            line = template_line(template, frame_line)
    if isinstance(error, RecursionError):
        return RenderError("RecursionError", "the template is nested too deeply", line)
    if isinstance(error, MemoryError):
        return RenderLimit("too much memory: the template needs more than it may have")
    return RenderError(type(error).__name__, str(error)[:_LONGEST_MESSAGE], line)
