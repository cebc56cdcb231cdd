"""Why a prompt parts from the reply stored behind an earlier one, with the tokens that a remedy would win."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..causes.stored_replies import ReplyPair, explain_reply
from ..tokenization.tokens import common_prefix_ids
from .comparison import Comparison, prompt_side
from .explanation import Explanation
from .replay_report import ChainLink, Remedy, message_ref

if TYPE_CHECKING:
    from ..attribution.ownership import Owner
    from ..caches.stored_reply import Reply
    from ..causes.base import Cause

#: Ids that evidence shows on each side.
_SHOWN_IDS = 4


def retokenised(compared: Comparison, reply: Reply, tokens: int) -> bool:
    """Tell whether a prompt parts from a reply in the ids alone: those of the reply's text go on further.

    Args:
        compared: the prompt that was replied to, all of whose ids are shared, and this one.
        reply: the reply.
        tokens: ids that this prompt shares with the stored sequence.
    """
    start = len(compared.earlier.ids)
    if compared.later.text.startswith(compared.earlier.text + reply.text):
        return True
    return start + common_prefix_ids(reply.text_ids, compared.later.ids[start:]) > tokens


def reply_explanation(
    compared: Comparison, reply: Reply, chars: int, owner: Owner, tokens: int
) -> Explanation:
    """Find why a prompt parts from a stored reply.

    Args:
        compared: the prompt that was replied to, all of whose ids are shared, and this one.
        reply: the reply.
        chars: characters that this prompt shares with both.
        owner: owner of the first differing character of this prompt.
        tokens: ids that it shares with both.
    """
    if retokenised(compared, reply, tokens):
        at = tokens - len(compared.earlier.ids)
        was, now = (list(map(int, ids[:_SHOWN_IDS])) for ids in (reply.ids[at:], compared.later.ids[tokens:]))
        said = (
            f"the characters go on alike, but the ids of the reply were {was} and are {now} from token "
            f"{tokens:,} on"
        )
        return _explained(owner, tokens, "tokenizer-boundary", True, said, ())
    earlier = compared.earlier
    pair = ReplyPair(
        earlier=prompt_side(earlier),
        message=reply.message,
        text=reply.text,
        later=prompt_side(compared.later),
        policy=reply.policy,
        template=earlier.template,
        chars=chars,
        owner=owner,
        ends=frozenset(reply.tokenizer.special_tokens.values()),
    )
    cause = explain_reply(pair)
    remedies = tuple(_remedies(compared, reply, cause, tokens))
    return _explained(owner, tokens, cause.id, cause.confirmed, cause.evidence, remedies)


def _explained(
    owner: Owner, tokens: int, cause: str, confirmed: bool, evidence: str, remedies: tuple[Remedy, ...]
) -> Explanation:
    place = owner.region, message_ref(owner), owner.line
    link = ChainLink(cause, confirmed, tokens, *place, evidence, remedy=next(iter(remedies), None))
    return Explanation(cause, confirmed, evidence, remedies, (link,))


def _remedies(compared: Comparison, reply: Reply, cause: Cause, tokens: int) -> Iterator[Remedy]:
    """Yield the remedies that win tokens, counted from the ids that are stored."""
    encode = reply.tokenizer.encode
    for offer in cause.offers:
        first, second = offer.trial.earlier.text, encode(offer.trial.later.text)
        if first == compared.earlier.text + reply.text:
            stored = np.concatenate([compared.earlier.ids, reply.ids])
        else:
            stored = encode(first)
        won = common_prefix_ids(stored, second) - tokens
        if won > 0:
            yield Remedy(offer.kind, offer.set, won, offer.paste)
