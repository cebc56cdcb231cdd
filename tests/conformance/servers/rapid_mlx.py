"""Rapid-MLX: its own handlers and its engine for text models, up to the prompt that it would complete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..bodies import ROUTES
from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Rendered, Tokenizer


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub("mlx", "mlx_lm", "mlx_vlm", "psutil", "jsonschema", "llguidance", "PIL", "requests")
    from fastapi import HTTPException, Request
    from pydantic import ValidationError
    from rapid_mlx.api.models import ChatCompletionRequest
    from rapid_mlx.config import get_config
    from rapid_mlx.engine.batched import BatchedEngine
    from rapid_mlx.routes import anthropic, chat, responses

    class Engine(BatchedEngine):  # type: ignore[misc]
        def __init__(self, tokenizer: Tokenizer, native: bool) -> None:
            super().__init__("m")
            self._tokenizer, self._loaded, self._is_mllm = tokenizer, True, False
            self.preserve_native_tool_format = native

        async def generate(self, prompt: Any, **_: Any) -> Any:
            raise Rendered(prompt)

    async def answer(route: str, body: dict[str, Any]) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        raw = Request(scope, receive)
        if route == "messages":
            response = await anthropic.create_anthropic_message(raw)
        elif route == "chat":
            response = await chat.create_chat_completion(ChatCompletionRequest(**body), raw)
        else:
            response = await responses.create_response(raw)
        raise AssertionError(response)

    def run(route: str, *, native: bool) -> ServerFunction:
        def function(body: dict[str, Any], tokenizer: Tokenizer) -> object:
            tokenizer.stops = False  # the server renders to count tokens, too
            config = get_config()
            config.engine, config.model_name, config.ready = Engine(tokenizer, native), "m", True
            try:
                return asyncio.run(answer(route, body))
            except (ValidationError, HTTPException) as error:
                raise Refused(str(error)) from error

        return function

    return {
        f"{route}{', native tools' * native}": run(route, native=native)
        for route in ROUTES
        for native in (False, True)
    }


_THINK_BLOCKS = (
    "After the render, the server puts a think block before each call of a finished tool loop, for templates "
    "like Qwen3.5's that leave it out there; the policy prepares messages and cannot."
)
SERVER = Server(
    "Rapid-MLX",
    "rapid-mlx",
    {
        f"{route}{', native tools' * native}": Compared(
            route,
            f"rapid-mlx:route={route}{',tools=native' * native}",
            share=0.97 if native else 0.99,
            reasons=(_THINK_BLOCKS,) if native else (),
        )
        for route in ROUTES
        for native in (False, True)
    },
    _load,
)
