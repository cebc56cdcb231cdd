"""vllm-mlx: its own handlers, with the simple engine that it starts by default and with the batched one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..bodies import ROUTES
from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Tokenizer


class _RawRequest:
    """What a handler is given of the connection: it never breaks."""

    headers: Mapping[str, str] = {}
    app = SimpleNamespace(state=SimpleNamespace())

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    async def json(self) -> dict[str, Any]:
        return self._body

    async def is_disconnected(self) -> bool:
        return False


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub("mlx", "mlx_lm", "mlx_vlm", "psutil", "jsonschema", "uvicorn", "PIL", "requests", "cv2")
    from fastapi import HTTPException
    from pydantic import ValidationError
    from vllm_mlx import server
    from vllm_mlx.engine.batched import BatchedEngine
    from vllm_mlx.engine.simple import SimpleEngine
    from vllm_mlx.models.llm import MLXLanguageModel

    def simple(tokenizer: Tokenizer) -> Any:
        model = object.__new__(MLXLanguageModel)
        model.tokenizer, model._loaded = tokenizer, True

        class Engine(SimpleEngine):  # type: ignore[misc]
            async def _run_blocking_serialized(self, function: Any, *given: Any, **named: Any) -> Any:
                return function(*given, **named)

        engine = Engine("m")
        engine._model, engine._loaded = model, True
        return engine

    def batched(tokenizer: Tokenizer) -> Any:
        engine = BatchedEngine("m")
        engine._tokenizer, engine._loaded, engine._is_mllm = tokenizer, True, False
        return engine

    def run(route: str, make: Any, *, native: bool) -> ServerFunction:
        async def answer(body: dict[str, Any], engine: Any) -> None:
            async def acquired(*_: Any, **__: Any) -> Any:
                return engine

            async def released(*_: Any, **__: Any) -> None:
                pass

            server._acquire_default_engine_for_request = acquired
            server._release_engine_for_request = released
            server.get_engine = lambda: engine
            server._validate_model_name = lambda _: None
            raw = _RawRequest(body)
            if route == "messages":
                response = await server.create_anthropic_message(raw)
            elif route == "chat":
                response = await server.create_chat_completion(server.ChatCompletionRequest(**body), raw)
            else:
                response = await server.create_response(server.ResponsesRequest(**body), raw)
            async for _ in response.body_iterator:
                pass

        def function(body: dict[str, Any], tokenizer: Tokenizer) -> object:
            engine = make(tokenizer)
            engine.preserve_native_tool_format = native
            try:
                return asyncio.run(answer(body, engine))
            except (ValidationError, HTTPException) as error:
                raise Refused(str(error)) from error

        return function

    functions = {}
    for route in ROUTES:
        functions[route] = functions[f"{route}, streamed"] = run(route, simple, native=False)
        functions[f"{route}, batched, native tools"] = run(route, batched, native=True)
    return functions


def _compared() -> Mapping[str, Compared]:
    found = {}
    for route in ROUTES:
        found[route] = Compared(route, f"vllm-mlx:route={route}")
        found[f"{route}, streamed"] = Compared(route, f"vllm-mlx:route={route}", fields={"stream": True})
        policy = f"vllm-mlx:route={route},engine=batched,tools=native"
        found[f"{route}, batched, native tools"] = Compared(route, policy)
    return found


SERVER = Server("vllm-mlx", "vllm-mlx", _compared(), _load)
