"""What a server keeps of a turn: its prompt, or its reply as well."""

from __future__ import annotations

from typing import Literal, TypeAlias

Store: TypeAlias = Literal["prompt", "prompt+output"]


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
