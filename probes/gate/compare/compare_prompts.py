"""Comparing the prompts of conversations: what is missing, moved or rewritten now, or merely differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..observe.prompts import PromptOutline, mid_system, placements_in
from ..subject import Subject
from .differences import Difference, Kind
from .edits import Edit, edit

#: Finds the template line that wrote a character of one of the head's prompts.
Locate = Callable[[PromptOutline, int], int | None]


def compare_prompt(
    subject: Subject, base: PromptOutline, head: PromptOutline, reported: frozenset[str], locate: Locate
) -> Iterator[Difference]:
    """Yield the differences between two prompts of one request.

    Args:
        subject: the conversation, and how it was rendered.
        base: the prompt before.
        head: the prompt now.
        reported: the placements, as `tool/tail`, of which it is already reported that something else becomes
            of a system turn there; what follows from that is not repeated.
        locate: finds the template line of a character.
    """
    if not head.rendered:
        if base.rendered and not (reported & _placements(head)):
            yield Difference(
                "regressed", "prompt-raises", subject, "renders", _outcome(head), head.line, head.error
            )
        return
    request = head.request or base.request
    middle = mid_system(request) if request else frozenset()
    explained = bool(reported & _placements(head))
    ignored = middle if explained else frozenset()
    lost, was_lost = (frozenset(prompt.lost) - ignored for prompt in (head, base))
    if not base.rendered:
        if lost:
            yield Difference("regressed", "text-lost", subject, "raises", "lost", None, _which(head, lost))
        elif not explained:
            yield Difference("fixed", "prompt-raises", subject, _outcome(base), "renders", None, base.error)
        return
    found = list(_judged(subject, base, head, lost, was_lost, explained))
    yield from found
    if explained or any(each.kind == "regressed" for each in found) or base.digest == head.digest:
        return
    yield _changed(subject, base, head, locate)


def _judged(
    subject: Subject,
    base: PromptOutline,
    head: PromptOutline,
    lost: frozenset[int],
    was_lost: frozenset[int],
    explained: bool,
) -> Iterator[Difference]:
    """Yield what rules say about two prompts."""
    if lost - was_lost:
        detail = _which(head, lost - was_lost)
        yield Difference("regressed", "text-lost", subject, "written", "lost", None, detail)
    elif was_lost - lost:
        detail = _which(head, was_lost - lost)
        yield Difference("fixed", "text-lost", subject, "lost", "written", None, detail)
    if explained:
        return
    if head.disordered != base.disordered:
        kind: Kind = "regressed" if head.disordered else "fixed"
        yield Difference(kind, "text-moved", subject, _order(base), _order(head))
    if None not in (base.appended, head.appended) and head.appended != base.appended:
        kind = "fixed" if head.appended else "regressed"
        detail = _boundary(head)
        yield Difference(kind, "history-rewritten", subject, _grown(base), _grown(head), None, detail)


def _changed(subject: Subject, base: PromptOutline, head: PromptOutline, locate: Locate) -> Difference:
    """Describe two prompts that differ."""
    generation = base.body is not None and base.body == head.body
    found: Edit | None = None
    line = None
    if base.text is not None and head.text is not None:
        found = edit(base.text, head.text)
        line = locate(head, min(found.offset, len(head.text) - 1))
    gone = generation and head.digest == head.body and base.digest != base.body
    return Difference(
        "regressed" if gone else "changed",
        "generation-prompt" if generation else "prompt-changed",
        subject,
        None if found is None else found.pairs[0][0],
        None if found is None else found.pairs[0][1],
        line,
        edit=found,
    )


def _outcome(prompt: PromptOutline) -> str:
    """Say what became of a prompt that is none."""
    return "not-evaluated" if prompt.stopped else "raises"


def _placements(prompt: PromptOutline) -> frozenset[str]:
    return placements_in(prompt.request) if prompt.request else frozenset()


def _which(prompt: PromptOutline, indices: frozenset[int]) -> str | None:
    if prompt.request is None:
        return f"message {', '.join(map(str, sorted(indices)))}"
    named = (f"message {index} ({prompt.request.messages[index].role})" for index in sorted(indices))
    return ", ".join(named)


def _order(prompt: PromptOutline) -> str:
    return "another order" if prompt.disordered else "in order"


def _grown(prompt: PromptOutline) -> str:
    return "appended" if prompt.appended else "rewritten"


def _boundary(prompt: PromptOutline) -> str | None:
    if prompt.request is None:
        return None
    return f"when a {prompt.request.messages[-1].role} turn arrives"
