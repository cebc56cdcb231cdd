"""oMLX's own placement of system messages, of a checkout of yours, as a policy.

    PYTHONPATH=~/src/omlx tplaudit replay session.jsonl --model MODEL --policy omlx \
        --policy-code docs/examples/omlx_policy.py::prepare:cache=omlx,python=$HOME/src/omlx/.venv/bin/python

So a change of oMLX is tested before it is merged. It is for chat completions: the other two routes convert a
body before they come to this function. `unsupported=strict` is oMLX's other way with system messages that a
template does not support.
"""

from omlx.api.openai_models import ChatCompletionRequest
from omlx.api.tool_calling import convert_tools_for_template
from omlx.api.utils import extract_text_content, prepare_system_messages_for_template


def prepare(body, route, template, unsupported="user_note_safe"):
    """Return messages, tools and chat-template kwargs as oMLX's chat route gives them to the template."""
    if route != "chat":
        raise ValueError(f"this example is for chat completions, not for {route}")
    request = ChatCompletionRequest(**{"model": "m", **body})
    tools = convert_tools_for_template(request.tools)
    kwargs = dict(request.chat_template_kwargs or {})
    preserves = "preserve_thinking" in template.chat_template
    extracted = extract_text_content(
        request.messages,
        tokenizer=template,
        native_reasoning_content=preserves,
        consolidate_system_messages=False,
    )
    messages = prepare_system_messages_for_template(
        extracted,
        template,
        tools=tools,
        chat_template_kwargs=kwargs,
        unsupported_mid_system_policy=unsupported,
    )
    if preserves and kwargs.get("enable_thinking") is not False:
        kwargs.setdefault("preserve_thinking", True)
    return messages, tools, kwargs
