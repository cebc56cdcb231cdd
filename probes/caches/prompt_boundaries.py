"""What a server knows of a prompt beside its ids, read from a render: the marks of `caches.base`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..attribution.generation_prompt import suffix
from ..attribution.user_header import user_header
from ..errors import RenderError
from ..text import common_prefix
from ..tokenization.tokens import common_prefix_ids
from .base import PromptBoundaries

if TYPE_CHECKING:
    from ..attribution.prompt import Prompt
    from ..conversation import Request
    from ..models.layers import Layers
    from ..tokenization.tokens import Ids, IncrementalEncoder

_THINK = "<think>"


class BoundaryFinder:
    """Finds the marks of one policy's prompts.

    Where all layers can be cut, no cache takes account of positions, and none is looked for. Else that costs
    up to three renders for each prompt, and a few short ones for each set of chat-template kwargs.

    Args:
        encoder: what encodes the prompts; it is left as it is.
        layers: what the model's layers keep.
    """

    def __init__(self, encoder: IncrementalEncoder, layers: Layers) -> None:
        self._encoder = encoder
        self._layers = layers
        self._probed: dict[str, tuple[bool, Ids]] = {}

    def read(self, prompt: Prompt, *, replied: bool = False) -> PromptBoundaries:
        """Return a prompt's marks.

        Args:
            prompt: the prompt, with at least one token.
            replied: whether its reply is going to be stored with it.
        """
        messages = prompt.rendered.messages
        roles = [message.data.get("role") for message in messages]
        length = len(prompt.ids) if replied else None
        ends_in_user = not roles or roles[-1] == "user"
        if self._layers.trimmable:
            return PromptBoundaries(prompt_tokens=length, ends_in_user=ends_in_user)
        body = prompt.body if prompt.text.startswith(prompt.body) else prompt.text
        generation = self._tokens(prompt, len(body)) if len(body) < len(prompt.text) else None
        think = prompt.text.rfind(_THINK, len(body))
        last = max((at for at, role in enumerate(roles) if role == "user"), default=0)
        start = self._shared(prompt, prompt.rendered.replace(messages=messages[:last])) if last else 0
        persists, header = self._probe(prompt)
        leading = next((at for at, role in enumerate(roles) if role not in ("system", "developer")), 0)
        system = 0
        if leading:
            empty = messages[leading].replace(pieces=(), role="user", content="")
            system = self._shared(prompt, prompt.rendered.replace(messages=(*messages[:leading], empty)))
        return PromptBoundaries(
            prompt_tokens=length,
            generation_prompt=generation,
            persists=persists,
            system_end=system,
            think_start=self._tokens(prompt, think) if think >= 0 else None,
            ends_in_user=ends_in_user,
            user_start=start,
            user_headers=occurrences(header, prompt.ids),
        )

    def _shared(self, prompt: Prompt, beginning: Request) -> int:
        """Return how many tokens a prompt shares with the render of its first messages; 0 where none is."""
        try:
            text = prompt.template.render_request(
                beginning, add_generation_prompt=False, profile=prompt.profile
            )
        except RenderError:
            return 0
        return self._tokens(prompt, common_prefix(text, prompt.text))

    def _tokens(self, prompt: Prompt, chars: int) -> int:
        """Return how many of a prompt's tokens stand before a character of it."""
        return common_prefix_ids(self._encoder.fork().encode(prompt.text[:chars]), prompt.ids)

    def _probe(self, prompt: Prompt) -> tuple[bool, Ids]:
        """Tell whether history has the generation prompt, and what opens a user turn, for a set of kwargs."""
        kwargs, now = prompt.rendered.kwargs, prompt.rendered.now
        key = json.dumps(kwargs, sort_keys=True, default=repr)
        if key not in self._probed:
            header = self._encoder.fork().encode(user_header(prompt.template, kwargs, now))
            self._probed[key] = bool(suffix(prompt.template, kwargs, now).persists), header
        return self._probed[key]


def occurrences(header: Ids, ids: Ids) -> tuple[int, ...]:
    """Return where token ids stand within others, rising; nowhere where there are none."""
    import numpy as np

    if not len(header) or len(header) > len(ids):
        return ()
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(header))
    return tuple(np.flatnonzero((windows == header).all(axis=1)).tolist())
