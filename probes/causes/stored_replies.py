"""Why a prompt diverges from the reply that a server stored behind an earlier prompt.

The hypotheses are those of `explain`, as far as a reply can have them: what the client sent in its place,
what the template leaves out of it, and how it writes it. Each is proved by a counterfactual, in which the
prompt has to diverge later from the stored reply, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..attribution.ownership import Owner
from ..conversation import Message, Request
from ..policies.base import Policy
from ..templates.rendering import REASONING_KEYS
from ..templates.template import ChatTemplate
from ..text import common_prefix
from .base import (
    CandidateRemedy,
    Cause,
    Counterfactual,
    PromptSide,
    failure,
    json_value,
    render_side,
    renumbered,
    with_messages,
    without,
)
from .changes import as_written
from .client import label_of
from .reasoning import reasoning_of, split_reply
from .settings import kwarg_line
from .template import KEEPS, history_switches

#: Characters of a text that evidence shows.
_SHOWN = 40
_AS_GENERATED = "a template that writes replies as the model does"
#: A mark that ends a turn, such as `<|return|>`, where the tokenizer does not name it.
_LAST_MARK = re.compile(r"<\|[a-z_]+\|>\Z")
_OF_REPLIES = frozenset({"role", "content", "tool_calls", *REASONING_KEYS})


@dataclass(frozen=True, slots=True)
class ReplyPair:
    """A prompt with its reply, and a later prompt that begins with the former's body and then diverges.

    Attributes:
        earlier: the prompt that was replied to.
        message: the reply as the transcript has it, with the index that it has in history.
        text: what the model wrote.
        later: the later prompt.
        policy: the policy that both prompts went through.
        template: what rendered them.
        chars: characters that the earlier prompt with its reply and the later prompt share.
        owner: owner of the first differing character of the later prompt.
        ends: texts that end a turn, such as special tokens.
    """

    earlier: PromptSide
    message: Message
    text: str
    later: PromptSide
    policy: Policy
    template: ChatTemplate
    chars: int
    owner: Owner
    ends: frozenset[str] = frozenset()

    @property
    def rest(self) -> str:
        """What is stored behind the point where both diverge."""
        return (self.earlier.text + self.text)[self.chars :]

    @property
    def in_opening(self) -> bool:
        """Whether both diverge within the generation prompt."""
        return self.chars < len(self.earlier.text)

    @property
    def history(self) -> Message | None:
        """The message that stands in the reply's place in the later request; None where there is none."""
        messages = self.later.client.messages
        at = len(self.earlier.client.messages)
        return messages[at] if at < len(messages) else None

    @property
    def difference(self) -> str:
        """What the reply had and what history has, from the point on."""
        stored, at = self.earlier.text + self.text, self.chars
        mark = stored.rfind("<|", 0, at)
        if mark >= 0 and "|>" not in stored[mark:at]:
            at = mark  # both begin a mark, and then differ
        had, has = (repr(each[at : at + _SHOWN]) for each in (stored, self.later.text))
        if self.in_opening:
            return f"generation prompt and reply had {had}, history goes on with {has}"
        return f"the reply went on with {had}, history goes on with {has}"

    def trial(
        self, *, earlier: Request | None = None, later: Request | None = None, text: str | None = None
    ) -> Counterfactual | None:
        """Render the pair again, with other requests or another reply; None where that raises.

        Another reply is what stands behind the shared part of the generation prompt.
        """
        sides = []
        for own, request in ((self.earlier, earlier), (self.later, later)):
            side = own if request is None else render_side(request, self.policy, self.template)
            if side is None:
                return None
            sides.append(side)
        first, second = sides
        opening = first.text if text is None or not self.in_opening else first.text[: self.chars]
        reply = self.text if text is None else text
        first = replace(first, text=opening + reply)
        chars = common_prefix(first.text, second.text)
        return Counterfactual(first, second, chars, chars == len(first.text), self.policy, reply)

    def resolves(self, trial: Counterfactual | None) -> bool:
        """Tell whether less of the stored reply is lost in a trial, or nothing."""
        if trial is None:
            return False
        return trial.is_prefix or (trial.lost < len(self.rest) and trial.chars > self.chars)


def explain_reply(pair: ReplyPair) -> Cause:
    """Find why a prompt parts from a stored reply: the first hypothesis that a counterfactual confirms."""
    failed = ""
    for rule in _RULES:
        try:
            for cause in rule(pair):
                return replace(cause, evidence=f"{cause.evidence}: {pair.difference}")
        except Exception as error:  # what fails in an explanation costs that explanation only
            failed = failed or failure(error)
    return Cause("other", False, f"none of the known causes was proved{failed}: {pair.difference}")


def _sent_otherwise(pair: ReplyPair) -> Iterator[Cause]:
    """The client sent something else in the place of the reply."""
    later, new = pair.later.client, pair.history
    at = len(pair.earlier.client.messages)
    old = pair.message
    if new is None or new.data.get("role") != old.data.get("role"):
        restored = renumbered(later, (*later.messages[:at], old, *later.messages[at:]))
        trial = pair.trial(later=restored)
        said = f"not the template: the client left the reply out, which would be message {at}"
        if trial is not None and pair.resolves(trial):
            offer = CandidateRemedy(
                "client", f"send message {at} as it was", trial, apply=("client:history-rewritten",)
            )
            yield Cause("history-rewritten", True, said, trial, (offer,))
        return
    kept = {key: value for key, value in old.data.items() if key in new.data or key in _OF_REPLIES}
    old = replace(old, data={key: value for key, value in kept.items() if value is not None})
    if as_written(old.data) == as_written(new.data):
        return
    label = label_of(old, new, pair.policy.name)
    trial = pair.trial(later=with_messages(later, {new.index: old}))
    if trial is not None and pair.resolves(trial):
        offer = CandidateRemedy("client", label.set, trial, apply=(f"client:{label.id}",))
        yield Cause(label.id, True, label.evidence, trial, (offer,), label.values)


def _thinking_stripped(pair: ReplyPair) -> Iterator[Cause]:
    """The template does not write the reply's reasoning in history, whether or not the client sends it."""
    reasoning, new = reasoning_of(pair.message), pair.history
    split = split_reply(pair.text)
    if not reasoning and split is None:
        return
    index = len(pair.earlier.client.messages)
    length = len(reasoning or (split[0] if split else ""))
    id, later, and_sent = "thinking-stripped", pair.later.client, ""
    said = f"the template does not write the reasoning of message {index} in history, {length:,} characters"
    if not length:
        said = f"the template does not write the empty think block of message {index} in history"
    if reasoning and new is not None and not reasoning_of(new):
        id, and_sent = "client-reasoning-dropped", ", and reasoning sent back"
        later = with_messages(later, {new.index: pair.message})
        said = (
            f"the client does not send the reasoning of message {index} back, {length:,} characters, and the "
            "template would not write it"
        )
    for name, value in history_switches(pair.template.choose(pair.later.rendered.tools)):
        first, second = (
            request.replace(kwargs={**request.kwargs, name: value})
            for request in (pair.earlier.client, later)
        )
        trial = pair.trial(earlier=first, later=second)
        if trial is not None and pair.resolves(trial):
            paste = kwarg_line(pair.policy.name, name, value)
            set_ = f"{name}={json_value(value)}"
            apply = (f"kwarg:{set_}", *((f"client:{id}",) if and_sent else ()))
            offer = CandidateRemedy("kwarg", f"{set_}{and_sent}", trial, paste, apply=apply)
            yield Cause(id, True, said, trial, (offer,))
            return
    users = [message.index for message in later.messages[index:] if message.data.get("role") == "user"]
    trials = (
        pair.trial(later=without(later, users)) if users else None,
        pair.trial(text=split[1].lstrip("\n")) if split else None,
        pair.trial(text=split[1]) if split else None,
    )
    for trial in trials:
        if trial is not None and pair.resolves(trial):
            yield Cause(id, True, said, trial, (CandidateRemedy("template", f"{KEEPS}{and_sent}", trial),))
            return


def _rewritten(pair: ReplyPair) -> Iterator[Cause]:
    """The template writes the reply in another form than the model did: it is sent back as that text."""
    if pair.history is None:
        return
    verbatim = Message({"role": "assistant", "content": pair.text}, pair.history.index)
    trial = pair.trial(later=with_messages(pair.later.client, {verbatim.index: verbatim}))
    if trial is None or not pair.resolves(trial):
        return
    calls = pair.owner.field == "tool_calls" and pair.owner.index == verbatim.index
    what = "the tool call" if calls else "the reply"
    said = f"the template writes {what} of message {verbatim.index} in another form than the model"
    id = "tool-arguments-reserialised" if calls else "reply-rewritten"
    yield Cause(id, True, said, trial, (CandidateRemedy("template", _AS_GENERATED, trial),))


def _framed_otherwise(pair: ReplyPair) -> Iterator[Cause]:
    """History lacks white space around the reply, or a mark that ended it."""
    bare = pair.text.rstrip()
    for mark in pair.ends:
        bare = bare.removesuffix(mark) if mark else bare
    bare = _LAST_MARK.sub("", bare).strip()
    trial = pair.trial(text=bare) if bare != pair.text else None
    if trial is not None and pair.resolves(trial):
        said = "the reply began or ended with white space or a mark that history does not have there"
        yield Cause(
            "reply-rewritten", True, said, trial, (CandidateRemedy("template", _AS_GENERATED, trial),)
        )


def _only_opened_otherwise(pair: ReplyPair) -> Iterator[Cause]:
    """History does not have what the generation prompt ended in, and has all of the reply behind it."""
    for cause in _opened_otherwise(pair):
        if cause.trial is not None and cause.trial.is_prefix:
            yield cause


def _opened_otherwise(pair: ReplyPair) -> Iterator[Cause]:
    """History does not have what the generation prompt ended in."""
    if not pair.in_opening:
        return
    trial = pair.trial(text=pair.text)
    if trial is not None and pair.resolves(trial):
        lost = pair.earlier.text[pair.chars :]
        said = f"the generation prompt ended in {lost!r}, which does not stand before the reply in history"
        offer = CandidateRemedy("template", "a template opening replies alike", trial)
        yield Cause("generation-prompt-mismatch", True, said, trial, (offer,))


_RULES = (
    _sent_otherwise,
    _only_opened_otherwise,
    _thinking_stripped,
    _opened_otherwise,
    _framed_otherwise,
    _rewritten,
)
