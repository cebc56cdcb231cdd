"""SGLang: all three routes, from the request's model to its template, and its test of templates.

The path for models with a Jinja template is followed; gpt-oss, DeepSeek V3.2 and V4 and others have
their own.
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
    *("torch", "IPython", "PIL", "aiohttp", "openai_harmony", "partial_json_parser", "psutil", "pybase64"),
    *("requests", "triton", "xgrammar", "zmq"),
    *("sglang.kernels", "sglang.srt.configs", "sglang.srt.constrained", "sglang.srt.disaggregation"),
    *("sglang.srt.layers", "sglang.srt.managers", "sglang.srt.multimodal", "sglang.srt.server_args"),
    "sglang.srt.utils",
)
_SERVING = SimpleNamespace(
    default_chat_template_kwargs=None, trust_request_chat_template=False, enable_response_store=True
)


def _load(folder: Path) -> Mapping[str, ServerFunction]:
    stub(*_STUBS)
    from sglang.srt.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from sglang.srt.entrypoints.anthropic.serving import AnthropicServing
    from sglang.srt.entrypoints.openai import serving_chat, serving_responses
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, ResponsesRequest
    from sglang.srt.parser.template_detection import detect_inline_system_support
    from sglang.srt.parser.template_manager import TemplateManager

    for module in (serving_chat, serving_responses):
        module.get_serving = lambda: _SERVING
        module.get_model = lambda: SimpleNamespace(context_length=1_000_000)
    serving_responses.get_disagg = lambda: SimpleNamespace(disaggregation_mode="null")

    def serving(kind: Any, tokenizer: Tokenizer, reasoning_parser: str | None = None) -> Any:
        settings = {"reasoning_parser": reasoning_parser, "tool_call_parser": None}
        manager = SimpleNamespace(
            tokenizer=tokenizer,
            processor=None,
            served_model_name="m",
            server_args=None,
            config_value=settings.get,
            model_config=SimpleNamespace(
                hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"], model_type="llama"),
                is_multimodal=False,
                get_default_sampling_params=dict,
            ),
        )
        tokenizer.stops = False
        templates = TemplateManager()
        templates.load_chat_template(manager, None, "m")
        made = kind(manager, templates)
        tokenizer.stops = True
        tokenizer.calls.clear()
        return made

    def checked(model: Any, body: dict[str, Any]) -> Any:
        try:
            return model.model_validate(body)
        except ValueError as error:
            raise Refused(str(error)) from error

    def rendered(chat: Any, request: Any) -> object:
        """What `OpenAIServingBase.handle_request` does with a request before the engine gets it."""
        if refusal := chat._validate_request(request):
            raise Refused(refusal)
        return chat._convert_to_internal_request(request)

    def chat(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        request = checked(ChatCompletionRequest, body)
        return rendered(serving(serving_chat.OpenAIServingChat, tokenizer), request)

    def messages(body: dict[str, Any], tokenizer: Tokenizer, reasoning_parser: str | None = None) -> object:
        """`AnthropicServing.handle_messages`, and what it calls."""
        request = checked(AnthropicMessagesRequest, body)
        openai = serving(serving_chat.OpenAIServingChat, tokenizer, reasoning_parser)
        try:
            converted = AnthropicServing(openai)._convert_to_chat_completion_request(request)
        except Exception as error:
            raise Refused(str(error)) from error
        return rendered(openai, converted)

    def thinking(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        return messages(body, tokenizer, "qwen3")

    def responses(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        request = checked(ResponsesRequest, body)
        openai = serving(serving_responses.OpenAIServingResponses, tokenizer)
        return asyncio.run(openai._make_request(request, None, tokenizer))

    def test(body: dict[str, Any], tokenizer: Tokenizer) -> object:
        return detect_inline_system_support(tokenizer.chat_template)

    return {"chat": chat, "messages": messages, "thinking": thinking, "responses": responses, "test": test}


SERVER = Server(
    "SGLang",
    "sglang",
    {
        "chat": Compared("chat", "sglang", 0.97),
        "messages": Compared("messages", "sglang", 0.97),
        "thinking": Compared("messages", "sglang:reasoning-parser=think", 0.97),
        "responses": Compared("responses", "sglang", 0.97),
        "test": Compared("templates", "sglang", 1.0),
    },
    _load,
)
