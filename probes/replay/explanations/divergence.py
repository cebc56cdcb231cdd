"""Where two prompts part: how much they share, and what the first differing character belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...attribution.ownership import Owner
from ...text import common_prefix
from ..replay_report import Divergence, MessageRef, Place, SincePrevious, message_ref
from .comparison import Comparison
from .explanation import Explanation

if TYPE_CHECKING:
    from ...caches.stored_reply import Reply

#: Characters of each text that a report shows from the divergence point on.
EXCERPT = 120
#: Characters that it shows of what both texts have before it.
BEFORE = 60
#: Ids that it shows on each side where the characters go on alike.
SHOWN_IDS = 8


def since_previous(compared: Comparison, explained: Explanation | None = None) -> SincePrevious:
    """Report how a prompt compares with the previous turn's, and why, where a cause was looked for."""
    cause = explained.cause if explained else None
    confirmed = explained.confirmed if explained else None
    if compared.body_is_prefix:
        return SincePrevious(
            compared.tokens, compared.chars, True, compared.is_prefix, cause=cause, confirmed=confirmed
        )
    return SincePrevious(
        tokens=compared.tokens,
        chars=compared.chars,
        body_preserved=False,
        generation_prompt_shared=compared.is_prefix,
        region=compared.owner.region,
        message=message_ref(compared.owner),
        rendered_index=compared.owner.rendered_index,
        was=_place(compared.earlier_owner),
        cause=cause,
        confirmed=confirmed,
    )


def divergence(compared: Comparison, block_size: int, explained: Explanation | None = None) -> Divergence:
    """Report where a prompt parts from a stored one that is no prefix of it.

    Args:
        compared: the stored prompt and this one.
        block_size: tokens per cache block.
        explained: why, where a cause was looked for.
    """
    stored, prompt, chars, tokens = compared.earlier, compared.later, compared.chars, compared.tokens
    ids = slice(tokens, tokens + SHOWN_IDS if compared.is_prefix else tokens)
    return Divergence(
        stored_turn=stored.turn,
        tokens=tokens,
        chars=chars,
        region=compared.owner.region,
        message=message_ref(compared.owner),
        rendered_index=compared.owner.rendered_index,
        cause=explained.cause if explained else None,
        confirmed=explained.confirmed if explained else False,
        line=compared.owner.line,
        stored=stored.text[chars : chars + EXCERPT],
        prompt=prompt.text[chars : chars + EXCERPT],
        remedy=next(iter(explained.remedies), None) if explained else None,
        block=tokens // block_size,
        before=prompt.text[max(0, chars - BEFORE) : chars],
        was=_place(compared.earlier_owner),
        evidence=explained.evidence if explained else None,
        remedies=explained.remedies if explained else (),
        chain=explained.chain if explained else (),
        stored_ids=tuple(map(int, stored.ids[ids])),
        prompt_ids=tuple(map(int, prompt.ids[ids])),
    )


def reply_divergence(
    compared: Comparison,
    reply: Reply,
    stored: int,
    tokens: int,
    block_size: int,
    why: Explanation | None = None,
) -> Divergence:
    """Report where a prompt that begins with a stored one diverges from the reply stored behind that.

    Args:
        compared: the stored prompt, all of whose ids are shared, and this one.
        reply: the reply to the stored prompt.
        stored: how many of the reply's ids are stored.
        tokens: token ids that the prompt shares with the stored sequence.
        block_size: tokens per cache block.
        why: why, where a cause was looked for.
    """
    earlier, prompt = compared.earlier, compared.later
    text = earlier.text + reply.text
    chars = min(common_prefix(text, prompt.text), len(prompt.text) - 1)
    owner = compared.owner_at(chars)
    at = tokens - len(earlier.ids)
    alike = why is not None and why.cause == "tokenizer-boundary"
    was, now = reply.ids[at:stored][:SHOWN_IDS], prompt.ids[tokens : tokens + SHOWN_IDS]
    return Divergence(
        stored_turn=earlier.turn,
        tokens=tokens,
        chars=chars,
        region=owner.region,
        message=message_ref(owner),
        rendered_index=owner.rendered_index,
        cause=why.cause if why else None,
        confirmed=why.confirmed if why else False,
        line=owner.line,
        stored=text[chars : chars + EXCERPT],
        prompt=prompt.text[chars : chars + EXCERPT],
        remedy=next(iter(why.remedies), None) if why else None,
        block=tokens // block_size,
        before=prompt.text[max(0, chars - BEFORE) : chars],
        was=Place("message", MessageRef(len(earlier.client.messages), "assistant", None), None),
        evidence=why.evidence if why else None,
        remedies=why.remedies if why else (),
        chain=why.chain if why else (),
        stored_ids=tuple(map(int, was)) if alike else (),
        prompt_ids=tuple(map(int, now)) if alike else (),
    )


def _place(owner: Owner) -> Place:
    return Place(owner.region, message_ref(owner), owner.line)
