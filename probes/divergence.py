"""Where two prompts part: how much they share, and what the first differing character belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from .conversation import Request
from .errors import RenderError
from .ownership import Owner, owner_at
from .rendering import Profile
from .report import Divergence, Place, SincePrevious, message_ref
from .template import ChatTemplate
from .tokens import common_prefix, common_prefix_ids

if TYPE_CHECKING:
    from .tokens import Ids

#: Characters of each text that a report shows from the divergence point on.
EXCERPT = 120


@dataclass(frozen=True)
class Prompt:
    """A rendered request.

    Attributes:
        turn: number of the request, counted from 1.
        client: the request as the client sent it.
        rendered: the request as the policy made it, which the template saw.
        text: the prompt, generation prompt included.
        ids: its token ids, shape `(n,)`.
        template: what rendered it.
        profile: what the template got besides the messages.
    """

    turn: int
    client: Request
    rendered: Request
    text: str
    ids: Ids
    template: ChatTemplate = field(repr=False)
    profile: Profile = "transformers"

    @cached_property
    def body(self) -> str:
        """The prompt without its generation prompt; the whole prompt where the template refuses that."""
        try:
            return self.template.render_request(
                self.rendered, add_generation_prompt=False, profile=self.profile
            )
        except RenderError:
            return self.text

    def owner(self, offset: int) -> Owner:
        """Return the owner of a character of the prompt. Raises RenderError (see `owner_at`)."""
        return owner_at(
            self.template, self.client, self.rendered, self.text, offset, lambda: self.body, self.profile
        )


def since_previous(earlier: Prompt, later: Prompt) -> SincePrevious:
    """Compare a prompt with the previous turn's."""
    chars = common_prefix(earlier.text, later.text)
    whole = chars == len(earlier.text)
    preserved = later.text.startswith(earlier.body)
    tokens = common_prefix_ids(earlier.ids, later.ids)
    if preserved:
        return SincePrevious(tokens, chars, True, whole)
    owner, was = later.owner(chars), earlier.owner(chars)
    return SincePrevious(
        tokens=tokens,
        chars=chars,
        body_preserved=False,
        generation_prompt_shared=whole,
        region=owner.region,
        message=message_ref(owner),
        rendered_index=owner.rendered_index,
        was=Place(was.region, message_ref(was), was.line),
    )


def divergence(stored_turn: int, stored_text: Callable[[], str], tokens: int, prompt: Prompt) -> Divergence:
    """Describe where a prompt parts from a stored sequence that is no prefix of it.

    Args:
        stored_turn: the turn that stored it.
        stored_text: returns its text.
        tokens: token ids that both share.
        prompt: the prompt.
    """
    stored = stored_text()
    chars = common_prefix(stored, prompt.text)
    owner = prompt.owner(chars)
    return Divergence(
        stored_turn=stored_turn,
        tokens=tokens,
        chars=chars,
        region=owner.region,
        message=message_ref(owner),
        rendered_index=owner.rendered_index,
        cause=None,
        confirmed=False,
        line=owner.line,
        stored=stored[chars : chars + EXCERPT],
        prompt=prompt.text[chars : chars + EXCERPT],
    )
