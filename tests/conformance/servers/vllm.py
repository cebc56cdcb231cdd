"""vLLM: all three routes, from the request's model to its renderer, and its test of templates.

The renderer for models with a Jinja template is followed; gpt-oss models have one of their own (harmony).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..server import Compared, Refused, Server, ServerFunction
from ..stubs import stub
from ..tokenizer import Tokenizer

_STUBS = (
    *("torch", "PIL", "aiohttp", "cloudpickle", "cpuinfo", "openai_harmony", "orjson", "partial_json_parser"),
    *("prometheus_client", "psutil", "pybase64", "requests", "urllib3", "uvloop", "xgrammar", "zmq"),
    *("vllm.config", "vllm.distributed", "vllm.engine", "vllm.env_override", "vllm.model_executor"),
    *("vllm.multimodal", "vllm.platforms", "vllm.transformers_utils"),
    *("vllm.v1.core", "vllm.v1.engine", "vllm.v1.metrics"),
)


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub(*_STUBS)
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages, DisabledThinkingEffortResolver
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse
    from vllm.exceptions import VLLMValidationError
    from vllm.renderers.hf import HfRenderer
    from vllm.renderers.online_renderer import OnlineRenderer

    def renderer(tokenizer: Tokenizer) -> Any:
        tokenizer.name_or_path = str(hash(tokenizer.chat_template))  # what is detected is kept by this name
        tokenizer.max_chars_per_token, tokenizer.truncation_side = 1, "left"
        model = SimpleNamespace(
            hf_config=SimpleNamespace(model_type="llama"),
            renderer_num_workers=1,
            chat_template_render_timeout=None,
            enable_prompt_embeds=False,
            supports_multimodal_inputs=False,
            multimodal_config=None,
            max_model_len=1_000_000,
            tokenizer="m",
            model="m",
            tokenizer_revision=None,
            revision=None,
            code_revision=None,
            trust_remote_code=False,
            is_encoder_decoder=False,
        )
        config = SimpleNamespace(
            model_config=model,
            parallel_config=SimpleNamespace(_api_process_rank=0),
            observability_config=None,
        )
        return OnlineRenderer(
            model,
            HfRenderer(config, tokenizer),
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=True,
        )

    def checked(model: Any, body: dict[str, Any]) -> Any:
        try:
            return model.model_validate(body)
        except ValueError as error:
            raise Refused(str(error)) from error
        except VLLMValidationError as error:
            raise Refused(str(error)) from error

    def answered(answer: Any) -> object:
        if isinstance(answer, ErrorResponse):
            raise Refused(answer.error.message)
        return answer

    def chat(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        request = checked(ChatCompletionRequest, body)
        return answered(asyncio.run(renderer(tokenizer).render_chat(request)))

    def messages(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        """`AnthropicServingMessages.create_messages`, with what its constructor finds out of the template."""
        online = renderer(tokenizer)
        serving = object.__new__(AnthropicServingMessages)
        serving._merge_inline_system = AnthropicServingMessages._should_merge_inline_system(online)
        serving.disabled_thinking_effort_resolver = DisabledThinkingEffortResolver(online)
        serving.create_chat_completion = lambda request, _: online.render_chat(request)
        request = checked(AnthropicMessagesRequest, body)

        async def run() -> object:
            own = online.renderer.tokenizer
            own.stops = False
            await serving.disabled_thinking_effort_resolver.resolve_for(request)
            own.stops = True
            tokenizer.calls.clear()
            return await serving.create_messages(request)

        return answered(asyncio.run(run()))

    def responses(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        request = checked(ResponsesRequest, body)
        serving = SimpleNamespace(use_harmony=False, enable_store=False)
        if error := OpenAIServingResponses._validate_create_responses_input(serving, request):
            raise Refused(error.error.message)
        return answered(asyncio.run(renderer(tokenizer).render_responses(request)))

    def test(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        return not AnthropicServingMessages._should_merge_inline_system(renderer(tokenizer))

    return {"chat": chat, "messages": messages, "responses": responses, "test": test}


SERVER = Server(
    "vLLM",
    "vllm",
    {
        "chat": Compared("chat", "vllm", 0.97),
        "messages": Compared("messages", "vllm", 0.97),
        "responses": Compared("responses", "vllm", 0.97),
        "test": Compared("templates", "vllm", 1.0),
    },
    _load,
)
