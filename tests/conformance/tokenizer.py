"""A tokenizer for servers' code that only renders: transformers' own rendering, and nothing else."""

from __future__ import annotations

from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from .tokenizer_names import SPECIAL


class Rendered(BaseException):
    """Carries the prompt out of a server's code; no `except Exception` of the server holds it."""

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        self.prompt = prompt


class Tokenizer:
    """Stands where a server has transformers' tokenizer.

    Attributes:
        chat_template: the template's source.
        calls: the arguments of every call so far.
        stops: whether the first prompt that renders ends the server's function, by `Rendered`; a server's
            test of the template turns it off.
    """

    def __init__(self, chat_template: str) -> None:
        self.chat_template = chat_template
        self.calls: list[dict[str, Any]] = []
        self.stops = True
        self.eos_token_id, self.bos_token_id = 2, 1
        self.name_or_path = "m"
        for name, value in SPECIAL.items():
            setattr(self, name, value)

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        tools: list[Any] | None = None,
        documents: Any = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Render as transformers does; where ids are asked for, one for each character."""
        self.calls.append(
            {
                "messages": conversation,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
                "continue_final_message": continue_final_message,
                **kwargs,
            }
        )
        for name in ("return_dict", "return_tensors", "padding", "truncation", "max_length"):
            kwargs.pop(name, None)
        rendered, _ = render_jinja_template(
            conversations=[conversation],
            tools=tools,
            documents=documents,
            chat_template=chat_template or self.chat_template,
            return_assistant_tokens_mask=False,
            continue_final_message=continue_final_message,
            add_generation_prompt=add_generation_prompt,
            **{**SPECIAL, **kwargs},
        )
        text: str = rendered[0]
        if self.stops:
            raise Rendered(text)
        return [ord(character) for character in text] if tokenize else text

    def get_chat_template(self, chat_template: str | None = None, tools: Any = None) -> str:
        return chat_template or self.chat_template

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    def get_vocab(self) -> dict[str, int]:
        return {}

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text)}
