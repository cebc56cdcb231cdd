"""Why a prompt diverges from an earlier one, and what would stop it, with the tokens that it would save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...attribution.ownership import Owner
from ...causes.base import failure
from ...causes.registry import Cause, Link, StoredText, chain
from ...policies.base import Policy
from ...text import common_prefix
from ...tokenization.tokens import IncrementalEncoder, common_prefix_ids
from ..replay_report import ChainLink, Remedy, UnreusedTokens, message_ref
from ..session_caches import PrefillPrice
from .cache_misses import shifted
from .comparison import Comparison, prompt_side

if TYPE_CHECKING:
    from ...caches.stored_reply import Reply
    from ...causes.base import Counterfactual
    from ...tokenization.tokens import Ids

#: Share of a turn's avoidable tokens that may stay unexplained.
_SMALL = 0.05
#: Ids that evidence shows on each side.
_SHOWN_IDS = 4
#: Causes whose remedies nobody has a setting for, so that a cache which shifts states is worth a word.
_UNSETTABLE = frozenset({"history-rewritten", "volatile-text", "tools-changed", "system-hoisted"})


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause of one divergence.

    Attributes:
        cause: an id of docs/causes.md.
        confirmed: whether it is proved.
        evidence: what shows it, one sentence without a full stop.
        remedies: what would stop it, the most useful first.
        chain: this cause, and those behind it.
        explained: avoidable tokens that confirmed causes of the chain account for (counted).
    """

    cause: str
    confirmed: bool
    evidence: str
    remedies: tuple[Remedy, ...] = ()
    chain: tuple[ChainLink, ...] = ()
    explained: int = 0


@dataclass(frozen=True, slots=True)
class StoredReplyIds:
    """A reply behind the earlier prompt, and how many of its ids are stored."""

    reply: Reply
    length: int

    @property
    def ids(self) -> Ids:
        """The ids that are stored."""
        return self.reply.ids[: self.length]

    @property
    def text(self) -> StoredText:
        """What causes are looked for in."""
        reply = self.reply
        return StoredText(
            reply.text, reply.message, reply.policy, frozenset(reply.tokenizer.special_tokens.values())
        )


def explanation(
    compared: Comparison,
    policy: Policy,
    encoder: IncrementalEncoder,
    price: PrefillPrice,
    stored: StoredReplyIds | None = None,
) -> Explanation | None:
    """Find why a prompt diverges from an earlier one. Never raises: what fails is told as cause `other`.

    Args:
        compared: both prompts.
        policy: the policy that both went through.
        encoder: counts tokens; forked, so that it stays as it is.
        price: what the turn prefills, and would.
        stored: the reply that is stored behind the earlier prompt.

    Returns:
        None where nothing diverges, or only the generation prompt of a turn that was not replied to.
    """
    walk = _Walk(compared, policy, encoder, price, stored)
    try:
        walk.run()
    except Exception as error:
        if not walk.links:
            return Explanation("other", False, f"no cause was found{failure(error)}")
    return walk.explanation()


def explained_tokens(price: PrefillPrice, why: Explanation | None, losses: tuple[UnreusedTokens, ...]) -> int:
    """Return how many of a turn's avoidable tokens are explained: by confirmed causes or by the cache."""
    found = (why.explained if why else 0) + sum(loss.tokens for loss in losses)
    return min(price.avoidable, found)


@dataclass
class _Walk:
    """Follows a chain of causes, and counts what undoing each of them saves."""

    compared: Comparison
    policy: Policy
    encoder: IncrementalEncoder
    price: PrefillPrice
    stored: StoredReplyIds | None
    links: list[ChainLink] = field(default_factory=list)
    remedies: tuple[Remedy, ...] = ()
    explained: int = 0
    _ids: dict[str, Ids] = field(default_factory=dict)

    def run(self) -> None:
        """Follow the chain until what is unexplained is small."""
        compared, price = self.compared, self.price
        earlier, later = compared.earlier, compared.later
        self._ids = {earlier.text: earlier.ids, later.text: later.ids}
        self._encoder = self.encoder.fork()
        left = self._boundary(price.prefilled)
        depth = self.links[-1].tokens if self.links else -1
        if self.links and self._enough():
            return
        owners = None
        if not compared.body_is_prefix:
            owners = compared.owner, compared.earlier_owner
        text = self.stored.text if self.stored else None
        for link in chain(
            prompt_side(earlier), prompt_side(later), self.policy, earlier.template, text, owners
        ):
            tokens = self._shared(link.earlier, link.reply, link.later)
            if tokens <= depth:
                return
            depth = tokens
            left = self._add(link, tokens, left)
            if self._enough():
                return

    def explanation(self) -> Explanation | None:
        """Return what was found."""
        if not self.links:
            return None
        first = self.links[0]
        return Explanation(
            first.cause,
            first.confirmed,
            first.evidence,
            self.remedies,
            tuple(self.links),
            min(self.explained, self.price.avoidable),
        )

    def _enough(self, explained: int | None = None) -> bool:
        unexplained = self.price.avoidable - (self.explained if explained is None else explained)
        return unexplained < self.price.block_size or unexplained < _SMALL * self.price.avoidable

    def _add(self, link: Link, tokens: int, left: int) -> int:
        """Report a link; return what is prefilled once its cause is undone."""
        cause = link.cause
        remedies = tuple(self._remedies(cause, tokens, left))
        if not self.links:
            remedies += tuple(self._by_shifting(cause))
            self.remedies = remedies
        saved, before = 0, self.explained
        trial = cause.trial if cause.confirmed else None
        if trial is not None:
            shared = self._shared_in(trial)
            saved = max(0, left - self.price.with_(shared, len(self._encoded(trial.later.text))))
            self.explained = self.price.avoidable if link.complete else self.explained + saved
        owner = link.owner
        self.links.append(
            ChainLink(
                cause=cause.id,
                confirmed=cause.confirmed,
                tokens=tokens,
                region=owner.region,
                message=message_ref(owner),
                line=owner.line,
                evidence=cause.evidence,
                values=cause.values,
                remedy=next(iter(remedies), None),
                saves=saved,
            )
        )
        if trial is not None and link.complete and not self._enough(before + saved):
            self._boundary_behind(trial, left - saved, owner)
        return left - saved

    def _boundary_behind(self, trial: Counterfactual, left: int, owner: Owner) -> None:
        """Report where the ids still diverge once every character goes on alike."""
        reply = trial.reply or (self.stored.reply.text if self.stored else "")
        was, now = self._stored_ids(trial.prompt, reply), self._encoded(trial.later.text)
        tokens = common_prefix_ids(was, now)
        saved = left - self.price.with_(len(was), len(now))
        if saved <= 0 or tokens == len(was) or not trial.later.text.startswith(trial.prompt + reply):
            return
        said = (
            "the characters go on alike then, but the ids are "
            f"{_few(was[tokens:])} in what is stored and {_few(now[tokens:])} in the prompt"
        )
        place = owner.region, message_ref(owner), owner.line
        self.links.append(ChainLink("tokenizer-boundary", True, tokens, *place, said, saves=saved))

    def _remedies(self, cause: Cause, tokens: int, left: int) -> Iterator[Remedy]:
        """Yield the remedies of a cause that win tokens, counted from where the prompts diverge."""
        for offer in cause.offers:
            shared = self._shared_in(offer.trial)
            if offer.within is not None:
                shared = min(shared, self._within(offer.within, offer.trial.later.text))
            if shared <= tokens:
                continue
            length = len(self._encoded(offer.trial.later.text))
            if offer.adds is not None:
                fewer, more = offer.adds
                length += len(self._encoded(more)) - len(self._encoded(fewer))
            saves = max(0, left - self.price.with_(shared, length))
            yield Remedy(offer.kind, offer.set, shared - tokens, offer.paste, saves, offer.apply)

    def _within(self, prompt: str, later: str) -> int:
        """Return the tokens of a prompt, and of the stored reply behind it where a later prompt has both."""
        tokens = len(self._encoded(prompt))
        if self.stored is not None and later.startswith(prompt + self.stored.reply.text):
            tokens += self.stored.length
        return tokens

    def _by_shifting(self, cause: Cause) -> Iterator[Remedy]:
        """Yield what llama.cpp saves where it may move states that stand behind a change."""
        if not self.price.shifts or cause.id not in _UNSETTABLE:
            return
        compared = self.compared
        was = self._stored_ids(compared.earlier.text, self.stored.reply.text if self.stored else "")
        found = shifted(was, compared.later.ids)
        if found is None:
            return
        least, tokens = found
        saves = min(tokens, self.price.prefilled - 1)
        set_ = f"--cache-reuse {least}"
        yield Remedy("cache", set_, tokens, f"llama-server … {set_}", saves)

    def _boundary(self, left: int) -> int:
        """Report where the ids diverge although the characters go on alike; return what is prefilled then."""
        compared, stored = self.compared, self.stored
        if not compared.is_prefix:
            return left
        reply = stored.reply.text if stored else ""
        was = self._stored_ids(compared.earlier.text, reply)
        now = compared.later.ids
        tokens = common_prefix_ids(was, now)
        if tokens == len(was) or tokens == len(now):
            return left
        text = compared.earlier.text + reply
        chars = common_prefix(text, compared.later.text)
        further = len(was) if chars == len(text) else self._as_text(tokens)
        if further <= tokens:
            return left
        said = (
            f"the characters go on alike, but the ids were {_few(was[tokens:])} and are {_few(now[tokens:])} "
            f"from token {tokens:,} on"
        )
        saved = max(0, left - self.price.with_(further, len(now)))
        self.explained = self.price.avoidable if chars == len(text) else saved
        owner = compared.owner_at(min(chars, len(compared.later.text) - 1))
        self.links.append(
            ChainLink(
                "tokenizer-boundary",
                True,
                tokens,
                owner.region,
                message_ref(owner),
                owner.line,
                said,
                saves=saved,
            )
        )
        return left - saved

    def _as_text(self, tokens: int) -> int:
        """Return how many ids were shared if the ids of the text were stored, not those generated."""
        compared, stored = self.compared, self.stored
        earlier, later = compared.earlier, compared.later
        if tokens < len(earlier.ids):
            whole = self._encoded(earlier.text + (stored.reply.text if stored else ""))
            return common_prefix_ids(whole, later.ids)
        if stored is None:
            return tokens
        rest = later.ids[len(earlier.ids) :]
        return len(earlier.ids) + common_prefix_ids(stored.reply.text_ids, rest)

    def _shared(self, prompt: str, reply: str, later: str) -> int:
        """Return how many token ids a stored sequence and a prompt share."""
        return common_prefix_ids(self._stored_ids(prompt, reply), self._encoded(later))

    def _shared_in(self, trial: Counterfactual) -> int:
        """Return how many token ids are shared in a counterfactual, with the reply behind the prompt."""
        reply = trial.reply or (self.stored.reply.text if self.stored else "")
        return self._shared(trial.prompt, reply, trial.later.text)

    def _stored_ids(self, prompt: str, reply: str) -> Ids:
        ids = self._encoded(prompt)
        if not reply:
            return ids
        same = self.stored is not None and reply == self.stored.reply.text
        behind = self.stored.ids if same and self.stored is not None else self._encoded(reply)
        return np.concatenate([ids, behind])

    def _encoded(self, text: str) -> Ids:
        if text not in self._ids:
            self._ids[text] = self._encoder.encode(text)
        return self._ids[text]


def _few(ids: Ids) -> list[int]:
    return list(map(int, ids[:_SHOWN_IDS]))
