"""Comparing transcripts: their prompts turn by turn, and what their replays count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...conversation import Message, Request, Transcript
from ...errors import RenderError
from ...policies.base import Policy, Prepared, render_prepared
from ...templates.template import ChatTemplate
from ..observe.prompts import PromptOutline, TurnRenders, Turns
from ..observe.replays import ReplayNumbers, named, replayed
from ..subject import Subject
from .compare_prompts import compare_prompt
from .differences import Difference, Kind

#: Shorter texts say too little about which message they belong to.
_SHORTEST_TEXT = 12


def compare_replays(base: ReplayNumbers, head: ReplayNumbers) -> Iterator[Difference]:
    """Yield what became better or worse in a transcript's replay.

    Avoidable tokens are compared where the same number of turns failed: a turn that raises costs nothing.
    """
    subject = replayed(head)
    if base.raised != head.raised:
        worse = head.raised > base.raised
        yield Difference(
            "regressed" if worse else "fixed",
            "replay-raises",
            subject,
            str(base.raised),
            str(head.raised),
            detail=head.error if worse else base.error,
        )
    elif base.avoidable != head.avoidable and head.rendered:
        kind: Kind = "regressed" if head.avoidable > base.avoidable else "fixed"
        yield Difference(kind, "replay-avoidable", subject, str(base.avoidable), str(head.avoidable))


def compare_transcript(
    transcript: Transcript,
    base: ChatTemplate,
    head: ChatTemplate,
    policy: Policy,
    reported: frozenset[str],
    now: datetime,
) -> Iterator[tuple[int, list[Difference]]]:
    """Compare the prompts of a transcript, turn by turn, where the policy makes the same of both templates.

    Yields:
        Whether anything was rendered, as 1 or 0, and the differences, for each turn.

    Raises:
        InputError: the transcript cannot be read.
    """
    subject = Subject("transcript", named(transcript.source))
    sides = [_Side(template, policy, now) for template in (base, head)]
    for request in transcript:
        before, after = (side.prompt(request) for side in sides)
        if before is None or after is None or not _same(sides[0].last, sides[1].last):
            continue
        found = list(compare_prompt(subject, before, after, reported, sides[1].line))
        yield int(before.rendered or after.rendered), found


class _Side:
    """One template's prompts of a transcript."""

    def __init__(self, template: ChatTemplate, policy: Policy, now: datetime) -> None:
        self.last: Prepared | None = None
        self._template = template
        self._policy = policy
        self._now = now
        self._turns = Turns(_texts)

    def prompt(self, request: Request) -> PromptOutline | None:
        """Render the next request; None where the server does not take it."""
        request = request.replace(now=request.now or self._now)
        prepared = self.last = self._policy.prepare(request, self._template)
        if prepared.error is not None:
            return None
        prompt: str | RenderError
        body: str | RenderError | None = None
        try:
            prompt, self.last = render_prepared(prepared, self._template)
            body = self._template.render_request(
                self.last.request, add_generation_prompt=False, profile=self.last.profile
            )
        except RenderError as error:
            prompt = error
        return self._turns.outline(TurnRenders(prepared.request, prompt, body))

    def line(self, prompt: PromptOutline, offset: int) -> int | None:
        """Find the template line that wrote a character of a prompt."""
        assert self.last is not None
        if prompt.request is None:
            return None
        return self._template.chunk_at(prompt.request, offset, profile=self.last.profile).line


def _same(one: Prepared | None, other: Prepared | None) -> bool:
    """Return whether a policy made the same of a request for both templates."""
    if one is None or other is None:
        return False
    first, second = one.request, other.request
    return (
        [message.data for message in first.messages] == [message.data for message in second.messages]
        and first.tools == second.tools
        and first.kwargs == second.kwargs
        and first.template == second.template
        and one.profile == other.profile
    )


def _texts(message: Message) -> Sequence[str]:
    """Return the texts of a message that have to stand in a prompt; not reasoning between think tags."""
    content: Any = message.content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    plain = (
        re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL).strip()
        for text in texts
        if isinstance(text, str)
    )
    return [text for text in plain if len(text) >= _SHORTEST_TEXT]
