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

from pydantic import ValidationError

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


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    infer_tool_parser = mlx_lm_tool_parser()
    stub(
        "mlx_vlm",
        "mlx_embeddings",
        "jsonschema",
        "requests",
        "itsdangerous",
        "openai_harmony",
        "aiohttp",
        "psutil",
        "PIL",
    )
    from omlx import server
    from omlx.engine.batched import BatchedEngine

    return omlx_functions(server, BatchedEngine, infer_tool_parser)


def omlx_functions(
    server: Any, batched_engine: Any, infer_tool_parser: Callable[[Any], str | None]
) -> Mapping[str, ServerFunction]:
    """Return the handlers of oMLX, or of a fork of it, as functions of the suite.

    Args:
        server: the module `omlx.server`.
        batched_engine: the class of the engine for text models.
        infer_tool_parser: what `mlx_lm_tool_parser` returns.
    """
    from omlx.api.utils import chat_template_preserves_mid_system
    from omlx.model_discovery import detect_preserve_thinking

    class Engine(batched_engine):  # type: ignore[misc]
        """The engine for text models, which ends where it would ask for the memory of a prefill."""

        def __init__(self, tokenizer: Tokenizer) -> None:
            super().__init__("m")
            self._tokenizer = tokenizer
            self._loaded = True

        async def preflight_chat(self, *given: Any, **named: Any) -> None:
            self._tokenizer.stops = True
            await super().preflight_chat(*given, **named)

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
            except ValidationError as error:
                raise Refused(str(error)) from error
            return asyncio.run(handler(request, SimpleNamespace(headers={})))

        return function

    def probe(_: dict[str, Any], tokenizer: Tokenizer) -> object:
        tokenizer.stops = False
        return {
            f"user/{placement}{' with tools' * bool(tools)}": chat_template_preserves_mid_system(
                tokenizer, tools=tools, placement=placement
            )
            for tools in (None, [{}])
            for placement in ("tail", "between")
        }

    return {
        "probe": probe,
        "chat": run(server.ChatCompletionRequest, server.create_chat_completion),
        "messages": run(server.AnthropicMessagesRequest, server.create_anthropic_message),
        "responses": run(server.ResponsesRequest, server.create_response),
    }


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
