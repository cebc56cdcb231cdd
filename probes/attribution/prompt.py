"""A rendered request with its token ids, and the owners of its characters."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..conversation import Request
from ..errors import RenderError
from ..policies.base import Action
from ..templates.template import ChatTemplate
from .ownership import Owner, owner_at

if TYPE_CHECKING:
    from ..templates.rendering import Profile
    from ..tokenization.tokens import Ids


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
        actions: what the policy did.
    """

    turn: int
    client: Request
    rendered: Request
    text: str
    ids: Ids
    template: ChatTemplate = field(repr=False)
    profile: Profile = "transformers"
    actions: tuple[Action, ...] = ()

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
