"""Why a prompt parts from an earlier one, and what would stop it, with the tokens that it would win."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..causes.registry import Cause, Link, PromptPair, chain, explain
from ..policies.base import Policy
from ..tokenization.tokens import IncrementalEncoder, common_prefix_ids
from .comparison import Comparison, prompt_side
from .replay_report import ChainLink, Remedy, message_ref

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause of one divergence.

    Attributes:
        cause: an id of docs/causes.md.
        confirmed: whether it is proved.
        evidence: what shows it, one sentence without a full stop.
        remedies: what would stop it, the most useful first.
        chain: this cause, and those behind it.
    """

    cause: str
    confirmed: bool
    evidence: str
    remedies: tuple[Remedy, ...] = ()
    chain: tuple[ChainLink, ...] = ()


def explanation(compared: Comparison, policy: Policy, encoder: IncrementalEncoder) -> Explanation | None:
    """Find why a prompt parts from an earlier one.

    Args:
        compared: both prompts.
        policy: the policy that both went through.
        encoder: counts tokens; forked, so that it stays as it is.

    Returns:
        None where nothing parts, or only the generation prompt of a turn that was not replied to.

    Raises:
        RenderError: the template does not render one of the prompts any more.
    """
    if not compared.body_is_prefix:
        return _diverged(compared, policy, encoder)
    if not compared.is_prefix:
        return _generation_prompt(compared) if _replied(compared) else None
    if compared.tokens < len(compared.earlier.ids):
        return _tokenizer_boundary(compared)
    return None


def _diverged(compared: Comparison, policy: Policy, encoder: IncrementalEncoder) -> Explanation:
    earlier, later = compared.earlier, compared.later
    pair = PromptPair(
        prompt_side(earlier),
        prompt_side(later),
        policy,
        later.template,
        compared.chars,
        compared.owner,
        compared.earlier_owner,
    )
    counter = _Counter(encoder)
    cause = explain(pair)
    links = tuple(_deepening(counter, chain(pair, cause)))
    return Explanation(cause.id, cause.confirmed, cause.evidence, tuple(counter.remedies(pair, cause)), links)


def _deepening(counter: _Counter, links: Iterator[Link]) -> Iterator[ChainLink]:
    """Report the links of a chain as long as each parts the prompts later than the one before."""
    depth = -1
    for link in links:
        tokens = counter.shared(link.pair.earlier.text, link.pair.later.text)
        if tokens <= depth:
            return
        depth = tokens
        yield ChainLink(
            cause=link.cause.id,
            confirmed=link.cause.confirmed,
            tokens=tokens,
            region=link.pair.owner.region,
            message=message_ref(link.pair.owner),
            line=link.pair.owner.line,
            evidence=link.cause.evidence,
            values=link.cause.values,
            remedy=next(counter.remedies(link.pair, link.cause), None),
        )


def _generation_prompt(compared: Comparison) -> Explanation:
    lost = compared.earlier.text[compared.chars :]
    tokens = len(compared.earlier.ids) - compared.tokens
    said = f"the generation prompt ended in {lost!r}, which does not stand before the reply in history"
    remedy = Remedy("template", "a template opening replies alike", tokens)
    return _single(compared, "generation-prompt-mismatch", said, remedy)


def _tokenizer_boundary(compared: Comparison) -> Explanation:
    at = compared.tokens
    was, now = (list(map(int, prompt.ids[at : at + 4])) for prompt in (compared.earlier, compared.later))
    said = f"the characters go on alike, but the ids were {was} and are {now} from token {at:,} on"
    return _single(compared, "tokenizer-boundary", said, None)


def _single(compared: Comparison, cause: str, evidence: str, remedy: Remedy | None) -> Explanation:
    owner = compared.owner
    link = ChainLink(
        cause, True, compared.tokens, owner.region, message_ref(owner), owner.line, evidence, remedy=remedy
    )
    return Explanation(cause, True, evidence, (remedy,) if remedy else (), (link,))


def _replied(compared: Comparison) -> bool:
    """Tell whether an assistant turn follows what the earlier prompt had."""
    messages, start = compared.later.rendered.messages, len(compared.earlier.rendered.messages)
    return start < len(messages) and messages[start].data.get("role") == "assistant"


class _Counter:
    """Counts the tokens that two texts share, each text encoded once."""

    def __init__(self, encoder: IncrementalEncoder) -> None:
        self._encoder = encoder.fork()
        self._ids: dict[str, Ids] = {}

    def shared(self, one: str, other: str) -> int:
        """Return how many leading token ids two texts share."""
        return common_prefix_ids(self._encoded(one), self._encoded(other))

    def remedies(self, pair: PromptPair, cause: Cause) -> Iterator[Remedy]:
        """Yield the remedies of a cause that win tokens, counted from where the pair parts."""
        now = self.shared(pair.earlier.text, pair.later.text)
        for offer in cause.offers:
            shared = self.shared(offer.trial.earlier.text, offer.trial.later.text)
            if offer.within is not None:
                shared = min(shared, len(self._encoded(offer.within)))
            if shared > now:
                yield Remedy(offer.kind, offer.set, shared - now, offer.paste)

    def _encoded(self, text: str) -> Ids:
        if text not in self._ids:
            self._ids[text] = self._encoder.encode(text)
        return self._ids[text]
