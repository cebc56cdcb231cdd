"""fusion-mlx: its own handlers and its engine for text models, up to the prompt that it would complete."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..bodies import ROUTES
from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Rendered, Tokenizer
from .omlx import mlx_lm_tool_parser


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    infer_tool_parser = mlx_lm_tool_parser()
    stub("mlx_vlm", "psutil", "jsonschema", "uvicorn", "PIL", "requests", "aiohttp")
    from fastapi import HTTPException, Request
    from fusion_mlx import server
    from fusion_mlx.api import anthropic_routes
    from fusion_mlx.api.openai import chat
    from fusion_mlx.engines.batched import BatchedEngine
    from fusion_mlx.pool.model_discovery import detect_preserve_thinking
    from fusion_mlx.routes_internal import responses
    from pydantic import ValidationError

    def preserve_thinking(template: str) -> bool | None:
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "chat_template.jinja").write_text(template)
            found: bool | None = detect_preserve_thinking(Path(directory))
            return found

    class Engine(BatchedEngine):  # type: ignore[misc]
        model_type = "m"  # no model that the server knows by its type

        def __init__(self, tokenizer: Tokenizer) -> None:
            super().__init__("m", preserve_thinking=preserve_thinking(tokenizer.chat_template))
            self._tokenizer, self._loaded = tokenizer, True

        async def generate(self, prompt: Any, **_: Any) -> Any:
            raise Rendered(prompt)

    async def released(*_: Any, **__: Any) -> None:
        pass

    server.resolve_model_with_profile = lambda name: (name, {})
    responses._validate_model_name = lambda _: None

    async def answer(route: str, body: dict[str, Any], engine: Any) -> None:
        async def resolved(*_: Any, **__: Any) -> Any:
            return engine

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        for module in (chat, anthropic_routes, responses):
            module._resolve_engine, module._release_engine = resolved, released
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        raw = Request(scope, receive)
        if route == "messages":
            request = anthropic_routes.AnthropicMessagesRequest(**body)
            response = await anthropic_routes.anthropic_messages(request, raw, True, True)
        elif route == "chat":
            response = await chat.chat_completions(chat.ChatCompletionRequest(**body), raw, True, True)
        else:
            response = await responses.create_response(raw)
        raise AssertionError(response)

    def run(route: str) -> ServerFunction:
        def function(body: dict[str, Any], tokenizer: Tokenizer) -> object:
            tokenizer.stops = False  # the server renders to count tokens, too
            tokenizer.has_tool_calling = infer_tool_parser(tokenizer) is not None
            try:
                return asyncio.run(answer(route, body, Engine(tokenizer)))
            except ValidationError as error:
                raise Refused(str(error)) from error
            except HTTPException as error:
                if error.status_code < 500:
                    raise Refused(str(error)) from error
                raise

        return function

    return {route: run(route) for route in ROUTES}


SERVER = Server(
    "fusion-mlx",
    "fusion-mlx",
    {route: Compared(route, f"fusion-mlx:route={route}") for route in ROUTES},
    _load,
)
