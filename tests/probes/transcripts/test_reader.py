"""Every file in tests/data/transcripts has one thing about it; its name says what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tplaudit.probes.conversation import Request
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.reader import open_transcript

DATA = Path(__file__).parents[2] / "data" / "transcripts"

# name: (requests before the error, what follows the file's name in `where`, a piece of the sentence)
REFUSED = {
    "empty.jsonl": (0, "", "the file is empty"),
    "blank-lines.jsonl": (0, "", "the file is empty"),
    "only-byte-order-mark.jsonl": (0, "", "the file is empty"),
    "prose.txt": (0, ":1", "broken JSON"),
    "chat-template.jsonl": (0, "", "this is a chat template, not a transcript"),
    "begins-with-text.jinja": (0, "", "this is a chat template, not a transcript"),
    "html-page.jsonl": (0, ":1", "broken JSON"),
    "cut-off-first-line.jsonl": (0, ":1", "broken JSON"),
    "cut-off-in-string.jsonl": (0, ":1", "broken JSON"),
    "broken-third-line.jsonl": (1, ":3", "broken JSON, expecting ',' delimiter at column 17"),
    "cut-off-last-line.jsonl": (1, ":3", "broken JSON"),
    "two-objects-in-a-line.jsonl": (0, ":1", "broken JSON, extra data at column 50"),
    "array-of-messages.jsonl": (0, ":1", "this is an array, not a JSON object"),
    "array-in-second-line.jsonl": (0, ":2", "this is an array, not a JSON object"),
    "string-in-second-line.jsonl": (1, ":2", "this is a string, not a JSON object"),
    "first-message-without-role.jsonl": (0, ":1", "a message has no role"),
    "second-message-without-role.jsonl": (0, ":2", "a message has no role"),
    "empty-object.jsonl": (0, ":2", "a message has no role"),
    "role-a-number.jsonl": (0, ":1", "the role of a message is a number"),
    "role-empty.jsonl": (0, ":1", "a message has no role"),
    "role-null-in-request.jsonl": (1, ":2, message 1", "a message has no role"),
    "content-a-number.jsonl": (0, ":2", "the content of a message is a number"),
    "content-an-object.jsonl": (0, ":1, message 0", "the content of a message is an object"),
    "content-list-of-numbers.jsonl": (0, ":1, message 0", "a list with other things in it"),
    "tool-calls-an-object.jsonl": (0, ":2", "tool_calls is not a list of objects"),
    "tool-calls-of-strings.jsonl": (0, ":2", "tool_calls is not a list of objects"),
    "partial-a-string.jsonl": (0, ":2", "partial is a string"),
    "messages-an-object.jsonl": (1, ":2", "messages is an object, not a list"),
    "messages-empty.jsonl": (1, ":2", "messages is empty"),
    "message-a-string.jsonl": (0, ":1, message 1", "a message is a string, not an object"),
    "tools-an-object.jsonl": (0, ":1", "tools is not a list of objects"),
    "tools-of-strings.jsonl": (0, ":1", "tools is not a list of objects"),
    "kwargs-a-list.jsonl": (0, ":1", "chat_template_kwargs is an array"),
    "now-not-a-time.jsonl": (0, ":1", "now is 'yesterday', not an ISO 8601 time"),
    "now-a-number.jsonl": (0, ":1", "now is a number"),
    "continue-a-string.jsonl": (0, ":1", "continue_final_message is a string"),
    "setting-misspelt.jsonl": (0, ":1", "chat_template_kwarg is not a setting"),
    "settings-only.jsonl": (0, "", "no request can be made of these lines"),
    "reply-only.jsonl": (0, "", "no request can be made of these lines"),
    "request-among-messages.jsonl": (0, ":2", "this is a request among lines that are messages"),
    "message-among-requests.jsonl": (1, ":2", "this is neither a message (role), a request"),
    "response-a-stream.jsonl": (0, ":1", "the response is neither a chat completion nor a message"),
    "response-content-a-number.jsonl": (0, ":1, response", "the content of a message is a number"),
    "no-requests.json": (0, "", "requests is empty"),
    "requests-an-object.json": (0, "", "requests is an object"),
    "request-a-string.json": (1, ": request 2", "a request is a string"),
    "request-with-wrong-message.json": (1, ": request 2, message 1", "a message has no role"),
    "broken-fourth-line.json": (0, ":4", "broken JSON, expecting value at column 45"),
    "cut-off.json": (0, ":4", "broken JSON"),
    "nul-bytes.jsonl": (0, ":2", "this is binary data"),
    "binary.bin": (0, ":1", "this is binary data"),
    "utf-16.jsonl": (0, ":1", "this is binary data"),
    "latin-1.jsonl": (0, ":2", "byte 36 is not UTF-8 text"),
    "surrogate-bytes.jsonl": (0, ":1", "byte 30 is not UTF-8 text"),
    "nan.jsonl": (0, ":2", "NaN is not a JSON number"),
    "negative-infinity.jsonl": (0, ":1", "-Infinity is not a JSON number"),
    "float-too-large.jsonl": (0, ":1", "1e999 is not a JSON number"),
    "integer-of-5000-digits.jsonl": (0, ":1", "an integer has too many digits"),
    "nested-200-deep.jsonl": (0, ":2", "nested more than 128 levels deep"),
    "nested-20000-deep.jsonl": (0, ":2", "nested more than 128 levels deep"),
    "anthropic-http-log.jsonl": (0, ":1", "a log of HTTP exchanges"),
    "anthropic-among-chat.jsonl": (1, ":2", "an Anthropic Messages request, not an OpenAI chat request"),
    "chat-among-anthropic.jsonl": (1, ":2", "an OpenAI chat request, not an Anthropic Messages request"),
    "chat-among-anthropic.json": (1, ": request 2", "an OpenAI chat request, not an Anthropic Messages"),
    "chat-among-responses.jsonl": (1, ":2", "an OpenAI chat request, not an OpenAI Responses request"),
    "responses-among-anthropic.jsonl": (2, ":3", "an OpenAI Responses request, not an Anthropic Messages"),
    "dialect-unknown.jsonl": (0, ":1", "the dialect 'anthropic' is named among OpenAI chat messages"),
    "dialect-too-late.jsonl": (1, ":4", "the dialect 'anthropic-messages' is named among OpenAI chat"),
    "anthropic-block-in-chat.jsonl": (0, ":3", "Anthropic Messages content part (tool_result) in an OpenAI"),
    "anthropic-setting-misspelt.jsonl": (0, ":1", "sytem is not a setting"),
    "anthropic-messages-empty.jsonl": (0, ":1", "messages is empty"),
    "anthropic-without-role.jsonl": (0, ":1, message 0", "a message has no role"),
    "anthropic-role-tool.jsonl": (1, ":2, message 1", "the role 'tool', which this API does not know"),
    "anthropic-role-developer.jsonl": (0, ":1, message 0", "the role 'developer', which this API"),
    "anthropic-content-null.jsonl": (1, ":2, message 1", "the content of a message is null"),
    "anthropic-block-a-string.jsonl": (0, ":1, message 0", "a content block is a string, not an object"),
    "anthropic-block-without-type.jsonl": (0, ":1, message 0", "a content block has no type"),
    "anthropic-text-without-text.jsonl": (0, ":1, message 0", "a block of type text has no text"),
    "anthropic-thinking-a-list.jsonl": (0, ":1, message 1", "the thinking of a block of type thinking is an"),
    "anthropic-input-a-string.jsonl": (
        0,
        ":1, message 1",
        "the input of a block of type tool_use is a string",
    ),
    "anthropic-result-without-id.jsonl": (0, ":1, message 0", "type tool_result has no tool_use_id"),
    "anthropic-result-a-number.jsonl": (
        0,
        ":1, message 0",
        "the content of a block of type tool_result is a",
    ),
    "anthropic-result-block-without-type.jsonl": (0, ":1, message 0", "a content block has no type"),
    "anthropic-image-without-source.jsonl": (0, ":1, message 0", "a block of type image has no source"),
    "anthropic-image-url.jsonl": (0, ":1, message 0", "OpenAI chat content part (image_url) in an Anthropic"),
    "anthropic-system-a-number.jsonl": (0, ":1", "system is a number"),
    "anthropic-system-an-image.jsonl": (0, ":1", "system is a list with other things in it"),
    "anthropic-tool-of-chat.jsonl": (0, ":1, tool 0", "a tool has no name"),
    "anthropic-response-a-completion.jsonl": (0, ":1", "the response is not an Anthropic message"),
    "responses-part.jsonl": (0, ":1", "OpenAI Responses content part (input_text) in an OpenAI chat request"),
    "responses-input-empty.jsonl": (0, ":1", "input is empty"),
    "responses-item-a-string.jsonl": (1, ":2, message 1", "an item of input is a string, not an object"),
    "responses-item-without-role.jsonl": (0, ":1, message 0", "a message has no role"),
    "responses-role-tool.jsonl": (0, ":1, message 0", "the role 'tool', which this API does not know"),
    "responses-type-a-number.jsonl": (0, ":1, message 0", "the type of an item is a number"),
    "responses-content-null.jsonl": (0, ":1, message 0", "the content of a message is null"),
    "responses-content-of-chat.jsonl": (0, ":1, message 0", "OpenAI chat content part (image_url) in an"),
    "responses-call-without-id.jsonl": (0, ":1, message 0", "an item of type function_call has no call_id"),
    "responses-arguments-an-object.jsonl": (0, ":1, message 0", "the arguments of an item of type"),
    "responses-output-a-number.jsonl": (0, ":1, message 0", "the output of an item of type"),
    "responses-reference.jsonl": (0, ":1, message 0", "item_reference names what is stored on a server"),
    "responses-instructions-a-list.jsonl": (0, ":1", "instructions is an array"),
    "responses-previous-unknown.jsonl": (1, ":2", "a response that is not in the transcript ('r2')"),
    "responses-previous-a-number.jsonl": (0, ":1", "a response that is not in the transcript (2)"),
    "responses-conversation.jsonl": (0, ":1", "conversation names what is stored on a server"),
    "responses-response-a-completion.jsonl": (0, ":1", "the response is not an object with a list of output"),
    "input-a-number.jsonl": (0, ":1", "this is neither a message (role), a request (messages, input) nor"),
    "claude-code-session.jsonl": (0, ":1", "a Claude Code session"),
    "claude-code-summary.jsonl": (0, ":1", "a Claude Code session"),
    "codex-rollout.jsonl": (0, ":1", "a Codex rollout"),
    "litellm-log.jsonl": (0, ":1", "a LiteLLM log"),
    "har-archive.har": (0, "", "a HAR archive"),
    "sharegpt.json": (0, "", "a ShareGPT conversation"),
    "atif-trajectory.json": (0, ":1", "an ATIF trajectory"),
    "unknown-object.jsonl": (0, ":1", "this is neither a message (role), a request (messages, input) nor"),
}

# name: the content of the one request's one message
READ = {
    "byte-order-marks.jsonl": "Which checks fail?",
    "crlf.jsonl": "Which checks fail?",
    "no-final-newline.jsonl": "Which checks fail?",
    "blank-lines-between.jsonl": "Which checks fail?",
    "line-separators-in-text.jsonl": "a\u2028b\u0085c",
    "duplicate-keys.jsonl": "last",
    "lone-surrogates.jsonl": "\ufffd half, \\ud800 text, \U0001f600 whole, \ufffd",
    "nested-100-deep.jsonl": "Which checks fail?",
    "integer-of-4000-digits.jsonl": "Which checks fail?",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_its_place_after_the_requests_before_it(name: str) -> None:
    path = DATA / name
    before, place, sentence = REFUSED[name]
    read: list[Request] = []
    with pytest.raises(InputError) as caught:
        for request in open_transcript(path):
            read.append(request)
    assert len(read) == before
    assert caught.value.where == f"{path}{place}"
    assert sentence in caught.value.what
    assert "\n" not in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("name", READ)
def test_read_all_the_same(name: str) -> None:
    (request,) = open_transcript(DATA / name)
    (message,) = request.messages
    assert message.content == READ[name]
    assert request.reply == {"role": "assistant", "content": "Two: style and types."}
    json.dumps(dict(message.data), ensure_ascii=False).encode("utf-8")


def test_no_file_is_forgotten() -> None:
    assert {path.name for path in DATA.iterdir()} == REFUSED.keys() | READ.keys()
