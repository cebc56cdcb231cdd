"""oMLX: its own handlers of the three routes, from the parsed body to the engine's last render."""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..bodies import ROUTES
from ..packages import unpacked
from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Tokenizer
from .mlx_lm import SERVER as MLX_LM


def mlx_lm_tool_parser() -> Callable[[Any], str | None]:
    """Return mlx-lm's own function that finds a tool parser by a tokenizer's template.

    Its other modules are stubs from then on: the forks want releases of it that differ in what they do not
    need here.
    """
    code = unpacked(MLX_LM)
    assert code is not None
    sys.path.append(str(code.folder))
    stub("mlx")
    found: Callable[[Any], str | None] = importlib.import_module("mlx_lm.tokenizer_utils")._infer_tool_parser
    sys.path.remove(str(code.folder))
    for name in [name for name in sys.modules if name.split(".")[0] == "mlx_lm"]:
        del sys.modules[name]
    stub("mlx_lm")
    return found


def omlx_routes() -> Mapping[str, ServerFunction]:
    """Return the handlers of oMLX, or of a fork that kept its module names, as functions of the suite."""
    infer_tool_parser = mlx_lm_tool_parser()
    stub("mlx_vlm", "mlx_embeddings", "jsonschema", "requests", "itsdangerous", "openai_harmony", "aiohttp")
    stub("psutil", "PIL")
    server = importlib.import_module("omlx.server")
    refusal = importlib.import_module("pydantic").ValidationError
    detect_preserve_thinking = importlib.import_module("omlx.model_discovery").detect_preserve_thinking

    class Engine(importlib.import_module("omlx.engine.batched").BatchedEngine):  # type: ignore[misc]
        """The engine for text models, which ends with the first render after that which counts tokens."""

        def __init__(self, tokenizer: Tokenizer) -> None:
            super().__init__("m")
            self._tokenizer = tokenizer
            self._loaded = True

        async def preflight_chat(self, *given: Any, **named: Any) -> None:
            self._tokenizer.stops = True
            await super().preflight_chat(*given, **named)

        async def chat(self, *given: Any, **named: Any) -> Any:
            self._tokenizer.stops = True
            return await super().chat(*given, **named)

    async def answer(handler: Any, request: Any) -> None:
        async def is_disconnected() -> bool:
            return False

        response = await handler(request, SimpleNamespace(headers={}, is_disconnected=is_disconnected))
        async for _ in response.body_iterator:
            pass

    def run(model: Any, handler: Any) -> ServerFunction:
        def function(body: dict[str, Any], tokenizer: Tokenizer) -> object:
            tokenizer.stops = False  # the server's test of the template, and the count of tokens, come first
            tokenizer.has_tool_calling = infer_tool_parser(tokenizer) is not None
            engine = Engine(tokenizer)
            with tempfile.TemporaryDirectory() as directory:
                (Path(directory) / "chat_template.jinja").write_text(tokenizer.chat_template)
                detected = detect_preserve_thinking(Path(directory))
            entry = SimpleNamespace(
                preserve_thinking_default=detected, config_model_type=None, model_context_length=None
            )
            pool = SimpleNamespace(get_entry=lambda _: entry, resolve_model_id=lambda name, _: name)

            async def engine_for(*_: Any, **__: Any) -> Any:
                return engine

            server._server_state.engine_pool = pool
            server.get_engine_for_model = engine_for
            try:
                request = model(**body)
            except refusal as error:
                raise Refused(str(error)) from error
            return asyncio.run(answer(handler, request))

        return function

    return {
        "chat": run(server.ChatCompletionRequest, server.create_chat_completion),
        "messages": run(server.AnthropicMessagesRequest, server.create_anthropic_message),
        "responses": run(server.ResponsesRequest, server.create_response),
    }


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    routes = omlx_routes()
    preserves = importlib.import_module("omlx.api.utils").chat_template_preserves_mid_system

    def probe(_: dict[str, Any], tokenizer: Tokenizer) -> object:
        tokenizer.stops = False
        return {
            f"user/{kind}{' with tools' * bool(tools)}": preserves(tokenizer, tools=tools, placement=kind)
            for tools in (None, [{}])
            for kind in ("tail", "between")
        }

    return {"probe": probe, **routes}


SERVER = Server(
    "oMLX",
    "",
    {
        "probe": Compared("templates", "omlx:version=0.5.3", share=1.0),
        **{route: Compared(route, f"omlx:route={route},version=0.5.3") for route in ROUTES},
    },
    _load,
    checkout="OMLX",
)
