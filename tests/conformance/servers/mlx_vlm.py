"""mlx-vlm's server with a text model: its own endpoints, up to the template."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Tokenizer

_STUBS = (
    *("mlx", "mlx_audio", "mlx_lm", "PIL", "cryptography", "cv2", "datasets", "miniaudio", "requests"),
    "soundfile",
)


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub(*_STUBS)
    from fastapi import HTTPException
    from fastapi.responses import JSONResponse
    from mlx_vlm.server import anthropic, openai
    from mlx_vlm.server.request_normalization import _as_plain_dict, _build_gen_args
    from mlx_vlm.server.schemas import ChatRequest

    class _Http:
        """Stands where a handler has the HTTP request."""

        def __init__(self, body: dict[str, Any]) -> None:
            self.body = body
            self.headers: dict[str, str] = {}

        async def json(self) -> dict[str, Any]:
            return self.body

    def answered(tokenizer: Tokenizer, handle: Callable[[], Any]) -> object:
        tokenizer.tokenizer = tokenizer  # a text model's processor is its tokenizer
        config = SimpleNamespace(model_type="llama")
        for module in (openai, anthropic):
            module.get_cached_model = lambda *_: (None, tokenizer, config)
            module._build_gen_args = lambda request, *_, **more: _build_gen_args(request, None)
            module._read_tenant_id = lambda _: None
            module._infer_tool_parser_from_processor = lambda *_, **__: None
            module._as_plain_dict = _as_plain_dict
        try:
            answer = asyncio.run(handle())
        except HTTPException as error:
            raise Refused(str(error.detail)) from error
        if isinstance(answer, JSONResponse):
            raise Refused(answer.body.decode())
        return answer

    def chat(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        try:
            request = ChatRequest.model_validate(body)
        except ValueError as error:
            raise Refused(str(error)) from error
        return answered(tokenizer, lambda: openai.chat_completions_endpoint(request, _Http(body)))

    def messages(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        return answered(tokenizer, lambda: anthropic.anthropic_messages_endpoint(_Http(body)))

    def responses(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        return answered(tokenizer, lambda: openai.responses_endpoint(_Http(body)))

    return {"chat": chat, "messages": messages, "responses": responses}


_REASONS = (
    "Arguments of a call that are the JSON text of a string: the server has none then, the policy that text.",
)

SERVER = Server(
    "mlx-vlm",
    "mlx-vlm",
    {
        "chat": Compared("chat", "mlx-vlm", 0.97, _REASONS),
        "messages": Compared("messages", "mlx-vlm", 0.97),
        "responses": Compared("responses", "mlx-vlm", 0.97),
    },
    _load,
)
