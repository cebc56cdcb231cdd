"""What a generation prompt ended in and history does not have, where no stored reply is compared."""

from __future__ import annotations

from dataclasses import replace

from ..templates.rendering import REASONING_KEYS
from .base import CandidateRemedy, Cause, Counterfactual, PromptPair, PromptSide, with_messages
from .reasoning import reasoning_of


def explain_opening(pair: PromptPair) -> Cause | None:
    """Find why the later prompt does not have all of the earlier one's generation prompt.

    None where nobody replied to it: then what it ends in is nobody's doing.
    """
    if not is_answered(pair.earlier, pair.later):
        return None
    lost = pair.earlier.text[pair.chars :]
    dropped = _reasoning_dropped(pair)
    if dropped is not None:
        return dropped
    # As if the template opened the reply in history like that: the earlier prompt, then what follows it now.
    opened = replace(pair.later, text=pair.earlier.text + pair.later.text[pair.chars :])
    trial = Counterfactual(pair.earlier, opened, len(pair.earlier.text), True, pair.policy)
    said = f"the generation prompt ended in {lost!r}, which does not stand before the reply in history"
    offer = CandidateRemedy("template", "a template opening replies alike", trial, within=pair.earlier.text)
    return Cause("generation-prompt-mismatch", True, said, trial, (offer,))


def is_answered(earlier: PromptSide, later: PromptSide) -> bool:
    """Tell whether the later prompt has a reply in the place where the earlier one asks for it."""
    messages, start = later.rendered.messages, len(earlier.rendered.messages)
    return start < len(messages) and messages[start].data.get("role") == "assistant"


def _reasoning_dropped(pair: PromptPair) -> Cause | None:
    """The client does not send the reply's reasoning back, and with it history begins like the reply."""
    reply, at = pair.earlier.client.reply, len(pair.earlier.client.messages)
    messages = pair.later.client.messages
    if reply is None or at >= len(messages) or messages[at].data.get("role") != "assistant":
        return None
    kept = {key: reply[key] for key in REASONING_KEYS if reply.get(key)}
    if not kept or reasoning_of(messages[at]):
        return None
    reasoning = reasoning_of(replace(messages[at], data=kept))
    sent = messages[at].replace(**kept)
    trial = pair.trial(later=with_messages(pair.later.client, {messages[at].index: sent}))
    if trial is None or trial.chars < len(pair.earlier.text):
        return None
    said = (
        f"the client does not send the reasoning of message {at} back: {len(reasoning):,} characters "
        "are missing"
    )
    offer = CandidateRemedy(
        "client", "send reasoning_content back", trial, apply=("client:client-reasoning-dropped",)
    )
    return Cause("client-reasoning-dropped", True, said, trial, (offer,))
