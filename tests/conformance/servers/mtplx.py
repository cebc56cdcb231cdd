"""MTPLX's server: its three routes, run up to the text that it would encode."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Rendered, Tokenizer


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub("mlx", "mlx_lm", "mlx_vlm", "huggingface_hub", "safetensors", "uvicorn")
    os.environ["HOME"] = tempfile.mkdtemp()
    os.environ["MTPLX_CHAT_ENCODE_CACHE"] = "0"
    from fastapi import HTTPException
    from mtplx.server import openai
    from pydantic import ValidationError

    def carry(tokenizer: Any, rendered: str, *_: Any, **__: Any) -> object:
        raise Rendered(rendered)

    # Each of these is given the whole prompt to make token ids of.
    for name in (
        "_encode_rendered_chat_text_segmented",
        "_encode_rendered_chat_turns",
        "_encode_rendered_chat_text",
    ):
        setattr(openai, name, carry)
    args = openai.parse_args(["--model", "m"])
    state = MagicMock()
    state.args = args
    state.retrieval = None
    state.main_system_prompt_hash = state.model_context_window_max = None
    state.backend_descriptor = openai.descriptor_for_backend_id(args.backend_id)
    state.lock.locked.return_value = state.has_foreground.return_value = False
    endpoints = {route.path: route for route in openai.create_app(state).routes}

    def function(path: str) -> ServerFunction:
        route = endpoints[path]
        model = route.body_field.field_info.annotation

        def run(body: dict[str, Any], tokenizer: Tokenizer) -> object:
            tokenizer.stops = False
            tokenizer.has_tool_calling = True
            state.runtime = SimpleNamespace(tokenizer=tokenizer, mtp_enabled=True)
            state.reasoning_history_scoped_capable = openai._template_supports_scoped_reasoning(tokenizer)
            state.sessions.resolve_session_id = lambda *, prompt_ids, **_: carry(
                None, "".join(map(chr, prompt_ids))
            )
            request = SimpleNamespace(headers={}, scope={}, state=SimpleNamespace())
            try:
                return asyncio.run(route.endpoint(request, model.model_validate(body)))
            except ValidationError as error:
                raise Refused(str(error)) from error
            except HTTPException as error:
                if error.status_code < 500:
                    raise Refused(str(error.detail)) from error
                raise

        return run

    return {
        "chat": function("/v1/chat/completions"),
        "messages": function("/v1/messages"),
        "responses": function("/v1/responses"),
    }


_POLICY = "mtplx"

SERVER = Server(
    "MTPLX",
    "mtplx",
    {route: Compared(route, _POLICY) for route in ("chat", "messages", "responses")},
    _load,
)
