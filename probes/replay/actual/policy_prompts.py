"""What a policy's server gets to see of a session: prompts, replies, and what it knows of their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...attribution.prompt import Prompt
from ...caches.prompt_boundaries import BoundaryFinder
from ...caches.registry import cache_name
from ...caches.stored_reply import Reply, Store, opens_thinking, reply_of, stored_length, stores_thinking
from ...conversation import Request, written_alike
from ...models.layers import Layers
from ...models.model import ReplayModel
from ...policies.base import Policy, Prepared, render_prepared
from ...tokenization.tokens import IncrementalEncoder

if TYPE_CHECKING:
    from ...caches.base import PromptBoundaries
    from ...tokenization.tokens import Ids

#: Prompts between two comparisons with whole-text encoding; the last prompt is always compared.
_CHECK_EVERY = 500


class PolicyPrompts:
    """The prompts of one policy, one after another.

    Args:
        policy: the policy.
        model: template and tokenizer.
        model_kind: what the model's layers keep; see `Layers.of`.
        system_prefix: as of `BoundaryFinder`.
    """

    def __init__(
        self,
        policy: Policy,
        model: ReplayModel,
        model_kind: str,
        system_prefix: Callable[[Request], bool] | None = None,
    ) -> None:
        self.encoder = IncrementalEncoder(model.tokenizer, check_every=_CHECK_EVERY)
        self._policy = policy
        self._model = model
        self._boundaries = BoundaryFinder(self.encoder, Layers.of(model_kind), system_prefix=system_prefix)

    def prompt(
        self,
        turn: int,
        request: Request,
        prepared: Prepared,
        rendered: list[tuple[Prepared, str, Ids]],
    ) -> Prompt:
        """Return the prompt of a request.

        Args:
            turn: number of the request.
            request: what the client sent.
            prepared: what the policy made of it.
            rendered: what this turn's other policies rendered, to which this is added; equal conversations
                share text and ids.

        Raises:
            RenderError: what the server answers instead.
        """
        template = self._model.template
        same = next((entry for entry in rendered if _same_input(entry[0], prepared)), None)
        if same is None:
            text, prepared = render_prepared(prepared, template)
            ids = self.encoder.encode(text)
            rendered.append((prepared, text, ids))
        else:
            _, text, ids = same
        return Prompt(
            turn, request, prepared.request, text, ids, template, prepared.profile, prepared.actions
        )

    def reply(self, prompt: Prompt, store: Store) -> tuple[Reply | None, Ids]:
        """Return a prompt's reply, and what of its ids the server stores; nothing where it stores prompts."""
        nothing = prompt.ids[:0]
        if store == "prompt":
            return None, nothing
        reply = reply_of(prompt, self._policy, self._model.tokenizer)
        if reply is None:
            return None, nothing
        length = stored_length(
            len(prompt.ids),
            len(reply.ids),
            store,
            open_think=opens_thinking(prompt),
            output_cacheable=stores_thinking(cache_name(self._policy), self._model.template, prompt),
        )
        return reply, reply.ids[: length - len(prompt.ids)]

    def boundaries(self, prompt: Prompt, output: Ids) -> PromptBoundaries:
        """Return what the server knows of a prompt that is stored with some ids of its reply."""
        return self._boundaries.read(prompt, replied=bool(len(output)))


def _same_input(one: Prepared, other: Prepared) -> bool:
    """Tell whether two policies' requests render alike because they are the same, key order included."""
    first, second = one.request, other.request
    return (
        one.error is other.error is None
        and one.profile == other.profile
        and first.now == second.now
        and first.partial == second.partial
        and first.template == second.template
        and written_alike(first.tools, second.tools)
        and written_alike(first.kwargs, second.kwargs)
        and len(first.messages) == len(second.messages)
        and all(written_alike(a.data, b.data) for a, b in zip(first.messages, second.messages, strict=True))
    )
