"""llama.cpp's own template engine beside transformers' Jinja: what its server would make of a request.

llama.cpp parses and runs Jinja itself (`common/jinja` of ggml-org/llama.cpp). The package ggufdoctor, an
optional extra, ships that code compiled to WebAssembly, with the server's test of a template's capabilities,
its rewriting of contents and its default variables. What stands above that in the server (`developer`, a
missing system role, arguments of tool calls) is done by the policy `llama-cpp`.

Bounds: a render has 5,000,000,000 units of fuel and 512 MiB of linear memory, both set by ggufdoctor 0.3; the
fuel of an endless loop lasts for seconds (docs/engines.md has measurements). It runs in a process of its own
(llamacpp_worker.py), with bounds of its own. Whatever goes wrong is a RenderError.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Protocol

from ..conversation import Request
from ..errors import InputError, RenderError, RenderLimit
from ..text import common_prefix
from .rendering import Limits, Profile
from .wire import dumps, plain
from .worker_process import WorkerDied, WorkerProcess, does_not_start

if TYPE_CHECKING:
    from .template import ChatTemplate

EXTRA = "pip install 'tplaudit[llamacpp]'"
#: Special tokens that the engine would make up where a template's model has none.
_MADE_UP = ("bos_token", "eos_token", "unk_token", "pad_token")
#: What `strftime_now` shows in the engine, whose clock stands still.
CLOCK = datetime(2026, 1, 1)
_MODULE = "tplaudit.probes.templates.llamacpp_worker"
#: Beside the engine's own bounds, which most templates that run away exceed first.
_LIMITS = Limits(seconds=30.0)
#: CPU seconds that all slow renders of one template may take together, and those after which one is slow.
_MOST_TOGETHER = 15.0
_FREE_SECONDS = 0.5
_PROCESS = WorkerProcess(_MODULE, watched=True)
_LOCK = threading.Lock()
#: Characters before and after the first difference that an excerpt shows.
_AROUND = 40


@dataclass(frozen=True, slots=True)
class EngineRender:
    """What llama.cpp's engine made of a request.

    Attributes:
        prompt: the text.
        capabilities: what the engine found that the template takes, by llama.cpp's names.
        rewrote_contents: whether it changed the form of contents for the template.
    """

    prompt: str
    capabilities: Mapping[str, bool]
    rewrote_contents: bool


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of one prompt around the first difference; `at` is where the difference is within `text`."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class EngineDifference:
    """Where the prompts of the two engines part.

    Attributes:
        offset: characters that both share.
        transformers: what transformers' Jinja wrote there.
        llamacpp: what llama.cpp's engine wrote there.
    """

    offset: int
    transformers: Excerpt
    llamacpp: Excerpt


@dataclass(frozen=True, slots=True)
class EngineComparison:
    """One request through both engines. The field names are the JSON names.

    Attributes:
        engine: name and build of llama.cpp's engine.
        transformers: the prompt of transformers' Jinja, or None where it raised.
        llamacpp: the prompt of llama.cpp's engine, or None where it raised.
        transformers_error: what transformers' Jinja raised.
        llamacpp_error: what llama.cpp's engine raised.
        difference: where the prompts part; None where they are the same, or where one is missing.
    """

    engine: str
    transformers: str | None
    llamacpp: str | None
    transformers_error: str | None
    llamacpp_error: str | None
    difference: EngineDifference | None

    @property
    def same(self) -> bool:
        """Whether both engines gave the same prompt, or both none."""
        return self.difference is None and (self.transformers is None) == (self.llamacpp is None)


class EngineInput(Protocol):
    """What a policy prepared, as far as an engine is concerned."""

    @property
    def request(self) -> Request:
        """The rewritten request."""
        ...

    @property
    def profile(self) -> Profile:
        """What the server's renderer gives a template besides the messages."""
        ...

    @property
    def error(self) -> RenderError | None:
        """What the server answers instead of rendering, where it does not take such a request."""
        ...


class LlamaCppEngine:
    """The engine, in a process of its own that is started when it is first used.

    Raises:
        InputError: the extra is not installed, or does not work on this machine.
    """

    def __init__(self) -> None:
        engine = load_engine()
        #: Name and build of the engine, as `llama.cpp b10775`.
        self.build = f"{engine.name} {engine.version}"
        self._seconds: dict[str, float] = {}

    def render(self, prepared: EngineInput, template: ChatTemplate) -> EngineRender:
        """Render what a policy prepared, with the same messages, tools, kwargs and special tokens.

        Args:
            prepared: the prepared request; of its second attempts none is made.
            template: where the template text and the special tokens come from.

        Raises:
            RenderError: whatever kept the engine from rendering; RenderLimit where that was a bound.
        """
        if prepared.error is not None:
            raise prepared.error
        request = prepared.request
        return self.render_text(template.choose(request.tools).text, _context(request, template))

    def render_text(self, text: str, context: Mapping[str, Any]) -> EngineRender:
        """Render a template text with its variables, `messages` among them.

        Raises:
            RenderError: see `render`.
        """
        (outcome,) = self.render_texts([(text, context)])
        if isinstance(outcome, RenderError):
            raise outcome
        return outcome

    def render_texts(
        self, wanted: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[EngineRender | RenderError]:
        """Render several template texts with their variables at once.

        Returns:
            For each what the engine made of it, or why it made nothing.
        """
        errors = [self._spent(text) or _unsendable(context) for text, context in wanted]
        sendable = [
            (text, dict(context)) for (text, context), error in zip(wanted, errors, strict=True) if not error
        ]
        answers = iter(_exchange(sendable))
        outcomes: list[EngineRender | RenderError] = []
        for (text, _), error in zip(wanted, errors, strict=True):
            answer = error or next(answers)
            outcome = answer if isinstance(answer, RenderError) else _outcome(answer)
            took = 0.0 if isinstance(answer, RenderError) else float(answer[0])
            if isinstance(outcome, RenderLimit) and error is None:
                took = max(took, _MOST_TOGETHER / 2)
            self._seconds[text] = self._seconds.get(text, 0.0) + max(took - _FREE_SECONDS, 0.0)
            outcomes.append(outcome)
        return outcomes

    def _spent(self, text: str) -> RenderLimit | None:
        """Return why a template is not rendered any more, where its renders took too long together."""
        if self._seconds.get(text, 0.0) < _MOST_TOGETHER - 1:
            return None
        return RenderLimit(f"too slow: its renders took more than {_MOST_TOGETHER:g} s of CPU time together")

    def compare(self, prepared: EngineInput, template: ChatTemplate) -> EngineComparison:
        """Render a prepared request through both engines and find where the prompts part.

        Both see the engine's clock, `CLOCK`, and not that of the request.
        """
        request = prepared.request.replace(now=CLOCK)
        ours, ours_error = _attempt(
            lambda: template.render_request(request, profile=prepared.profile), prepared.error
        )
        theirs, theirs_error = _attempt(lambda: self.render(prepared, template).prompt, None)
        difference = None if ours is None or theirs is None else first_difference(ours, theirs)
        return EngineComparison(self.build, ours, theirs, ours_error, theirs_error, difference)

    def capabilities(self, template: ChatTemplate) -> Mapping[str, bool]:
        """Return what llama.cpp finds that a template takes, by names such as `supports_system_role`.

        Raises:
            RenderError: the engine cannot read the template.
        """
        (answer,) = _exchange([(template.text, {"messages": [{"role": "user", "content": "u"}]})])
        if isinstance(answer, RenderError):
            raise answer
        _, error, _, found, _ = answer
        if not found:
            raise _as_render_error(error or "")
        return {str(name): bool(value) for name, value in found.items()}


def _unsendable(context: Mapping[str, Any]) -> RenderError | None:
    try:
        json.dumps(context, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return RenderError("ValueError", f"llama.cpp cannot get these variables as JSON: {error}")
    return None


def _exchange(tasks: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[Any, ...] | RenderError]:
    """Have the engine render texts; one that its process dies of gets a RenderLimit, and the others go on."""
    results: dict[int, tuple[Any, ...] | RenderError] = {}
    pending = list(range(len(tasks)))
    starts = 0
    with _LOCK:
        while pending:
            message = dumps((_LIMITS.seconds, [tuple(tasks[each]) for each in pending]))
            answers = _PROCESS.exchange(message, len(pending), _LIMITS.seconds, _LIMITS.bytes)
            try:
                results.update(zip(pending, answers, strict=True))
            except WorkerDied as death:
                if death.task is None:
                    starts += 1
                    if starts > 1:
                        raise does_not_start(_MODULE) from None
                else:
                    results[pending[death.task]] = RenderLimit(death.why)
            pending = [each for each in pending if each not in results]
    return [results[each] for each in range(len(tasks))]


def _outcome(answer: tuple[Any, ...]) -> EngineRender | RenderError:
    _, error, text, found, rewrote = answer
    if error is not None:
        return _as_render_error(error)
    return EngineRender(str(text), {str(name): bool(value) for name, value in (found or {}).items()}, rewrote)


def first_difference(transformers: str, llamacpp: str) -> EngineDifference | None:
    """Return where two prompts part, with both texts around it; None where they are the same."""
    if transformers == llamacpp:
        return None
    offset = common_prefix(transformers, llamacpp)
    return EngineDifference(offset, _excerpt(transformers, offset), _excerpt(llamacpp, offset))


def _excerpt(text: str, offset: int) -> Excerpt:
    start = max(offset - _AROUND, 0)
    return Excerpt(text[start : offset + _AROUND], offset - start)


def _attempt(render: Callable[[], str], error: RenderError | None) -> tuple[str | None, str | None]:
    if error is not None:
        return None, str(error)
    try:
        return render(), None
    except RenderError as raised:
        return None, str(raised)


def _context(request: Request, template: ChatTemplate) -> dict[str, Any]:
    """Return the variables that llama.cpp's server hands to its engine.

    Of special tokens it knows two; a template without them gets empty texts. Tools are not defined where
    there are none.
    """
    if request.partial:
        raise RenderError("ValueError", "llama.cpp's engine does not continue a last message")
    tokens = {name: template.special_tokens.get(name, "") for name in ("bos_token", "eos_token")}
    variables: dict[str, Any] = {
        **dict.fromkeys(_MADE_UP, ""),
        **tokens,
        "messages": [plain(message.data) for message in request.messages],
        "add_generation_prompt": True,
        **{name: plain(value) for name, value in request.kwargs.items()},
    }
    if request.tools:
        variables["tools"] = [plain(tool) for tool in request.tools]
    return variables


def _as_render_error(text: str) -> RenderError:
    """Describe what ggufdoctor says went wrong: a stage, a colon, and the engine's words."""
    stage, _, message = text.partition(":")
    message = message.strip()
    if stage == "raise":
        return RenderError("TemplateError", message)
    if stage == "compile":
        return RenderError("TemplateSyntaxError", message)
    if "bad_alloc" in message:
        return RenderLimit("too much memory: llama.cpp's engine needs more than it may have")
    if message.startswith("wasm: Trap"):
        return RenderLimit("too slow: llama.cpp's engine used up its fuel or its stack")
    return RenderError("RuntimeError", message or "llama.cpp's engine gave no prompt")


@lru_cache(maxsize=1)
def load_engine() -> Any:
    """Return ggufdoctor's engine, which renders a template text with a dict of variables."""
    try:
        version = metadata.version("ggufdoctor")
        module = import_module("ggufdoctor.engines.llamacpp_engine")
    except ImportError as error:
        raise InputError(
            "llama.cpp's template engine is not installed", fix=f"install it: {EXTRA}"
        ) from error
    if not version.startswith("0.3."):
        what = f"ggufdoctor {version} is installed, and its release 0.3 is needed"
        raise InputError(what, fix=f"install it: {EXTRA}")
    engine = module.LlamaCppEngine()
    if not engine.available:
        what = f"llama.cpp's template engine does not work here: {engine.unavailable_reason}"
        raise InputError(what, fix=f"install it again: {EXTRA}")
    return engine
