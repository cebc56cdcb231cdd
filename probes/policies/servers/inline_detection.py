"""The tests by which vLLM and SGLang decide, once per template, whether system turns stay where they stand.

Both render `[system, user, system, user]` when they start, in a sandbox of their own (`render_bare`), so that
a template which needs a special token, `raise_exception`, the clock or the generation tag fails. vLLM is
content when nothing raises, so a template that drops or moves the second system turn passes; SGLang looks for
its text, so one that moves it passes (docs/servers.md, sections 10 and 11; vllm-project/vllm#46025,
sgl-project/sglang#28906).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from ...conversation import Message
from ...errors import RenderError, RenderLimit
from ...templates.template import ChatTemplate
from ..base import Action, Messages, Rewrite
from ..kind import Answer
from ..rewrite.reasoning import template_text
from ..rewrite.system_turns import indices

SENTINEL = "__sglang_inline_system_sentinel__"
#: What both render; vLLM, which does not look for it, has another text in the second system turn.
TURNS = (("system", "t"), ("user", "t"), ("system", SENTINEL), ("user", "t"))
#: The errors of Jinja, which vLLM's test catches.
_CAUGHT = frozenset(
    """FilterArgumentError SecurityError TemplateAssertionError TemplateError TemplateNotFound
    TemplateRuntimeError TemplateSyntaxError TemplatesNotFound UndefinedError""".split()
)


@dataclass(frozen=True, slots=True)
class Detector:
    """One server's test with its memory of the answers.

    Attributes:
        ask: makes the test.
        answers: what was concluded so far.
    """

    ask: Callable[[ChatTemplate], Answer]
    answers: dict[Hashable, Answer] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, template: ChatTemplate) -> Answer:
        """Return whether the server leaves system turns of this template's conversations in place."""
        key = (id(template), template_text(template))
        if key not in self.answers:
            self.answers[key] = self.ask(template)
        return self.answers[key]

    def place(
        self,
        messages: Messages,
        others: Sequence[Message],
        template: ChatTemplate,
        *,
        in_place: Callable[[Messages], Rewrite],
        moved: Callable[[Messages], Rewrite],
    ) -> Rewrite:
        """Leave system turns in place or move them, as the test of the template decides."""
        answer = self(template)
        probed = Rewrite(messages, (Action("probed", indices(others), answer.why),))
        return probed.then(in_place if answer.in_place else moved)


def vllm_test(template: ChatTemplate) -> Answer:
    """Make vLLM's test: the four messages must render with each of several named templates.

    `_detect_merge_inline_system` of `vllm/entrypoints/anthropic/serving.py`, 0.33.0: errors of Jinja are
    caught; others end the server's start.
    """
    if not template_text(template):
        return Answer(False, "there is no template to test")
    for tools in {id(template.choose(tools)): tools for tools in ((), None)}.values():
        try:
            template.render_bare(TURNS, tools)
        except RenderError as error:
            why = f"a test of system, user, system, user, without what transformers adds, {error.clause}"
            starts = isinstance(error, RenderLimit) or error.kind in _CAUGHT
            if not starts:
                why += ", which the server does not catch: it does not start with this template"
            return Answer(False, why, not isinstance(error, RenderLimit), starts)
    return Answer(True, "a test of system, user, system, user renders; the server does not look at the text")


def sglang_test(template: ChatTemplate) -> Answer:
    """Make SGLang's test: a text in the second system message must come out.

    `detect_inline_system_support` of `sglang/srt/parser/template_detection.py`, 0.5.23.
    """
    try:
        prompt = template.render_bare(TURNS)
    except RenderError as error:
        why = f"a test of system, user, system, user, without what transformers adds, {error.clause}"
        return Answer(False, why, not isinstance(error, RenderLimit))
    if SENTINEL not in prompt:
        return Answer(False, "the text of the second system turn is not in the prompt")
    return Answer(True, "the text of the second system turn is in the prompt; the server does not look where")
