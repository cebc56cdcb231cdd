"""mlx-lm's server: chat completions only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..server import Compared, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Tokenizer


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub("mlx")
    from mlx_lm.server import ResponseGenerator

    provider = SimpleNamespace(processor=None, cli_args=SimpleNamespace(chat_template_args={}))
    server = SimpleNamespace(model_provider=provider)

    def chat(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        tokenizer.has_chat_template = tokenizer.has_tool_calling = True
        request = SimpleNamespace(
            request_type="chat", messages=body["messages"], tools=body.get("tools"), role_mapping=None
        )
        args = SimpleNamespace(chat_template_kwargs=body.get("chat_template_kwargs"))
        return ResponseGenerator._tokenize(server, tokenizer, request, args)

    return {"chat": chat}


SERVER = Server("mlx-lm", "mlx-lm", {"chat": Compared("chat", "mlx-lm")}, _load)
