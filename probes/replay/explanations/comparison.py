"""An earlier and a later prompt of one conversation: how much they share, and who owns what differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ...attribution.ownership import Owner
from ...attribution.prompt import Prompt
from ...causes.base import UNKNOWN_OWNER, PromptSide
from ...text import common_prefix
from ...tokenization.tokens import common_prefix_ids


@dataclass(frozen=True)
class Comparison:
    """An earlier and a later prompt side by side. What costs renders is found when first asked for."""

    earlier: Prompt
    later: Prompt
    _owners: dict[int, Owner] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def chars(self) -> int:
        """Characters that both share."""
        return common_prefix(self.earlier.text, self.later.text)

    @cached_property
    def tokens(self) -> int:
        """Token ids that both share."""
        return common_prefix_ids(self.earlier.ids, self.later.ids)

    @property
    def is_prefix(self) -> bool:
        """Whether the text of the whole earlier prompt is a prefix of the later one's."""
        return self.chars == len(self.earlier.text)

    @cached_property
    def body_is_prefix(self) -> bool:
        """Whether the earlier prompt without its generation prompt is a prefix of the later one."""
        return self.later.text.startswith(self.earlier.body)

    @property
    def owner(self) -> Owner:
        """The owner of the first differing character of the later prompt; `unknown` where none is found."""
        return self.owner_at(self.chars)

    @cached_property
    def earlier_owner(self) -> Owner:
        """The owner of the first differing character of the earlier prompt; `unknown` likewise."""
        return _owner(self.earlier, self.chars)

    def owner_at(self, offset: int) -> Owner:
        """Return the owner of a character of the later prompt; `unknown` where none is found."""
        offset = min(offset, len(self.later.text) - 1)
        if offset not in self._owners:
            self._owners[offset] = _owner(self.later, offset)
        return self._owners[offset]


def _owner(prompt: Prompt, offset: int) -> Owner:
    """Find an owner: where that fails, it costs the owner and no number."""
    try:
        return prompt.owner(offset)
    except Exception:  # what fails in an explanation never costs a number
        return UNKNOWN_OWNER


def prompt_side(prompt: Prompt) -> PromptSide:
    """Return a prompt as one side of a pair whose cause is looked for."""
    return PromptSide(prompt.client, prompt.rendered, prompt.text, prompt.actions, prompt.profile)
