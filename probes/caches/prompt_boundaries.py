"""What a server knows of a prompt beside its ids, read from a render: the marks of `caches.base`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..attribution.generation_prompt import suffix
from ..attribution.user_header import user_header
from ..conversation import TOP_LEVEL, Message, Request
from ..errors import RenderError
from ..text import common_prefix
from ..tokenization.tokens import common_prefix_ids
from .base import PromptBoundaries

if TYPE_CHECKING:
    from ..attribution.prompt import Prompt
    from ..models.layers import Layers
    from ..tokenization.tokens import Ids, IncrementalEncoder

_THINK = "<think>"
#: Two texts of a user turn behind system messages, and characters below which what both share is no prefix.
_FIRST, _SECOND = "Alpha", "Bravo"
_SHORTEST = 16
#: A reply, and a question that no conversation has.
_REPLY = {"role": "assistant", "content": "__rapid_mlx_boundary_probe__"}
_QUESTION = "XXXXXXXXXX"


class BoundaryFinder:
    """Finds the marks of one policy's prompts.

    Where all layers can be cut, no cache takes account of positions, and none is looked for. Else that costs
    up to three renders for each prompt, and a few short ones for each set of chat-template kwargs.

    Args:
        encoder: what encodes the prompts; it is left as it is.
        layers: what the model's layers keep.
        system_prefix: tells of a client's request whether a render of all its system messages is looked for,
            which costs two more; None for never.
    """

    def __init__(
        self,
        encoder: IncrementalEncoder,
        layers: Layers,
        *,
        system_prefix: Callable[[Request], bool] | None = None,
    ) -> None:
        self._encoder = encoder
        self._layers = layers
        self._system_prefix = system_prefix
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
        asks = self._system_prefix is not None and self._system_prefix(prompt.client)
        prefix = self._prefix(prompt) if asks else 0
        if self._layers.trimmable:
            return PromptBoundaries(prompt_tokens=length, ends_in_user=ends_in_user, system_prefix=prefix)
        body = prompt.body if prompt.text.startswith(prompt.body) else prompt.text
        generation = self._tokens(prompt, len(body)) if len(body) < len(prompt.text) else None
        think = prompt.text.rfind(_THINK, len(body))
        persists, header = self._probe(prompt)
        leading = next((at for at, role in enumerate(roles) if role != "system"), 0)
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
            turn_end=self._turn_end(prompt),
            user_headers=occurrences(header, prompt.ids),
            system_prefix=prefix,
        )

    def _shared(self, prompt: Prompt, other: Request, *, generation_prompt: bool = False) -> int:
        """Return how many tokens a prompt shares with another render; 0 where there is none."""
        text = _render(prompt, other, generation_prompt)
        return 0 if text is None else self._tokens(prompt, common_prefix(text, prompt.text))

    def _turn_end(self, prompt: Prompt) -> int:
        """Return where Rapid-MLX expects the next turn to part from a prompt, before its margin.

        Source: raullenchai/Rapid-MLX 0.16.10, `_compute_prefix_boundary` of `rapid_mlx/engine/batched.py`.
        """
        messages = prompt.rendered.messages
        last = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
        if last is None:
            return 0
        replied = Message(_REPLY, len(messages))
        next_turn = self._shared(prompt, prompt.rendered.replace(messages=(*messages, replied)))
        ids = self._encoder.fork().encode(prompt.body)
        stable = common_prefix_ids(ids, prompt.ids)
        if stable == len(ids) <= next_turn and stable < len(prompt.ids):
            return stable
        asked = messages[last].replace(pieces=(), content=_QUESTION)
        changed = prompt.rendered.replace(messages=(*messages[:last], asked, *messages[last + 1 :]))
        return min(self._shared(prompt, changed, generation_prompt=True), next_turn)

    def _prefix(self, prompt: Prompt) -> int:
        """Return the length of the prefix of all system messages, where a prompt begins with that.

        Source: waybarrios/vllm-mlx 0.6.0, `build_system_prompt_cache_prefix` of
        `vllm_mlx/engine/chat_template_safety.py`, and `vllm_mlx/engine/simple.py`.
        """
        systems = tuple(message for message in prompt.rendered.messages if message.role == "system")
        if not systems:
            return 0
        first, second = (
            _render(prompt, prompt.rendered.replace(messages=(*systems, _user(text))), True)
            for text in (_FIRST, _SECOND)
        )
        if first is None or second is None:
            return 0
        shared = common_prefix(first, second)
        ids = self._encoder.fork().encode(first[:shared])
        begins = shared >= _SHORTEST and common_prefix_ids(ids, prompt.ids) == len(ids) < len(prompt.ids)
        return len(ids) if begins else 0

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


def _user(text: str) -> Message:
    return Message({"role": "user", "content": text}, TOP_LEVEL)


def _render(prompt: Prompt, other: Request, generation_prompt: bool) -> str | None:
    """Return another request as a prompt's template writes it; None where it raises."""
    try:
        return prompt.template.render_request(
            other, add_generation_prompt=generation_prompt, profile=prompt.profile
        )
    except RenderError:
        return None


def occurrences(header: Ids, ids: Ids) -> tuple[int, ...]:
    """Return where token ids stand within others, rising; nowhere where there are none."""
    import numpy as np

    if not len(header) or len(header) > len(ids):
        return ()
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(header))
    return tuple(np.flatnonzero((windows == header).all(axis=1)).tolist())
