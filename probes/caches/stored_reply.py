"""What a server keeps of a reply, and the reply's tokens as it holds them behind the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ..conversation import Message
from ..errors import RenderError
from ..templates.rendering import REASONING_KEYS
from ..text import common_prefix
from .registry import find_cache

if TYPE_CHECKING:
    from ..attribution.prompt import Prompt
    from ..policies.base import Policy
    from ..templates.template import ChatTemplate
    from ..tokenization.tokens import Ids, Tokenizer

#: What is stored of a turn: its prompt, or its reply as well.
Store: TypeAlias = Literal["prompt", "prompt+output"]
#: The key of generated ids in a reply, as in vLLM's answer to `return_token_ids`.
GENERATED = "token_ids"
_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply behind its prompt, without what ends the turn.

    Attributes:
        text: what the model wrote.
        ids: its token ids, shape `(n,)`.
        source: `generated` for ids of the transcript, `text` for the ids of the text, which can differ from
            those that the model generated.
        message: the reply as the transcript has it, without generated ids.
        policy: what put it into chat form.
        tokenizer: what encodes it.
    """

    text: str
    ids: Ids
    source: Literal["generated", "text"]
    message: Message
    policy: Policy
    tokenizer: Tokenizer

    @property
    def text_ids(self) -> Ids:
        """The ids of the text, encoded by itself; those of `ids` can differ where they were generated."""
        return self.ids if self.source == "text" else self.tokenizer.encode(self.text)


def reply_of(prompt: Prompt, policy: Policy, tokenizer: Tokenizer) -> Reply | None:
    """Return the reply to a prompt; None where the transcript has none, or it cannot be told as text."""
    reply = prompt.client.reply
    if reply is None:
        return None
    message = Message(
        {key: value for key, value in reply.items() if key != GENERATED}, len(prompt.client.messages)
    )
    end = tokenizer.special_tokens.get("eos_token") or prompt.template.special_tokens.get("eos_token") or ""
    given = reply.get(GENERATED)
    if isinstance(given, list) and given:
        ids = np.array(given, np.int32)
        if end and np.array_equal(ids[-1:], tokenizer.encode(end)):
            ids = ids[:-1]
        if not len(ids):
            return None
        return Reply(tokenizer.decode(ids), ids, "generated", message, policy, tokenizer)
    text = _text(prompt, message, policy)
    if text is None:
        return None
    head, found, rest = text.rpartition(end) if end else ("", "", text)
    text = head if found and not rest.strip() else text.rstrip()
    return Reply(text, tokenizer.encode(text), "text", message, policy, tokenizer) if text else None


def opens_thinking(prompt: Prompt) -> bool:
    """Tell whether a prompt ends inside a think block."""
    return prompt.text.rfind(_OPEN) > prompt.text.rfind(_CLOSE) and prompt.text.rstrip().endswith(_OPEN)


def stores_thinking(cache: str, template: ChatTemplate, prompt: Prompt) -> bool:
    """Tell whether a server stores replies that think."""
    stores = find_cache(cache).stores_thinking
    return stores is None or stores(template, prompt.rendered.kwargs)


def stored_length(
    prompt_tokens: int,
    output_tokens: int,
    store: Store = "prompt+output",
    *,
    open_think: bool = False,
    output_cacheable: bool = True,
) -> int:
    """Return how many tokens of prompt and reply are stored.

    A reply to a prompt that ends inside an open think block begins with reasoning, which history may not
    have. oMLX, flyto-mlx and fusion-mlx then store the prompt alone, unless the output was found to be
    cacheable (docs/servers.md, sections 1.13, 1.17, 2 and 3; `omlx_reasoning.output_cacheable` is oMLX's
    rule). Other servers store what they have.

    Args:
        prompt_tokens: tokens of the prompt.
        output_tokens: tokens of the reply.
        store: what the person asked to be stored.
        open_think: whether the prompt ends inside a think block.
        output_cacheable: whether the server caches replies that think.
    """
    if store == "prompt" or (open_think and not output_cacheable):
        return prompt_tokens
    return prompt_tokens + output_tokens


def _text(prompt: Prompt, reply: Message, policy: Policy) -> str | None:
    """Return what the template writes of a reply as history, from where the prompt ends."""
    asked = prompt.client.replace(messages=(*prompt.client.messages, reply), reply=None)
    messages = policy.prepare(asked, prompt.template).request.messages
    written = tuple(message for message in messages if message.origins == (reply.index,))
    rendered = prompt.rendered.replace(messages=(*prompt.rendered.messages, *written), partial=False)
    try:
        whole = prompt.template.render_request(rendered, add_generation_prompt=False, profile=prompt.profile)
    except RenderError:
        return None
    if whole.startswith(prompt.text):
        return whole[len(prompt.text) :]
    if not whole.startswith(prompt.body) or not written:
        return None
    # History does not have all of the generation prompt: the reply goes on where both part.
    opening, turn = prompt.text[len(prompt.body) :], whole[len(prompt.body) :]
    rest = turn[common_prefix(opening, turn) :]
    if not opens_thinking(prompt):
        return rest
    reasoning = next((written[0].data[key] for key in REASONING_KEYS if written[0].data.get(key)), "")
    return f"{reasoning}\n{_CLOSE}\n\n{rest}"
