"""The tests by which vLLM and SGLang decide, once per template, whether system turns stay where they stand.

Both render `[system, user, system, user]` when they start. vLLM is content when nothing raises, so a template
that drops or moves the second system turn passes; SGLang looks for its text, so one that moves it passes
(docs/servers.md, sections 10 and 11; vllm-project/vllm#46025, sgl-project/sglang#28906).
"""

from __future__ import annotations

import re
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
ROLES = ("system", "user", "system", "user")
#: A tag and functions that transformers gives to templates and SGLang's test does not.
_GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_MISSING_FUNCTIONS = re.compile(r"\b(raise_exception|strftime_now)\b")
_MISSING_NAMES = re.compile(r"\bmissing_(raise_exception|strftime_now)\b")


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
    """Make vLLM's test: the four messages must render, without tools."""
    try:
        template.render([{"role": role, "content": "t"} for role in ROLES], add_generation_prompt=False)
    except RenderError as error:
        why = f"a test of system, user, system, user {error.clause}"
        return Answer(False, why, not isinstance(error, RenderLimit))
    return Answer(True, "a test of system, user, system, user renders; the server does not look at the text")


def sglang_test(template: ChatTemplate) -> Answer:
    """Make SGLang's test: a text in the second system message must come out.

    The server's environment for this has no special tokens, no `raise_exception`, no `strftime_now` and no
    generation tag, so that a template which needs one of them fails; here the two functions get names that do
    not exist. Unlike there, `tools` is None instead of undefined.
    """
    from ...templates.template import ChatTemplate

    text = template_text(template)
    if _GENERATION_TAG.search(text):
        return Answer(False, "the server's test does not know the generation tag")
    bare = ChatTemplate(
        {"default": _MISSING_FUNCTIONS.sub(r"missing_\1", text)},
        source="SGLang's test",
        limits=template.limits if isinstance(template, ChatTemplate) else None,
        profile="raw",
    )
    contents = ("t", "t", SENTINEL, "t")
    messages = [{"role": role, "content": content} for role, content in zip(ROLES, contents, strict=True)]
    try:
        prompt = bare.render(messages, add_generation_prompt=False)
    except RenderError as error:
        said = _MISSING_NAMES.sub(r"\1", error.clause)
        why = f"a test of system, user, system, user {said}"
        return Answer(False, why, not isinstance(error, RenderLimit))
    if SENTINEL not in prompt:
        return Answer(False, "the text of the second system turn is not in the prompt")
    return Answer(True, "the text of the second system turn is in the prompt; the server does not look where")
