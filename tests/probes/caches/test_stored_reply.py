"""Replies behind their prompts: their tokens, what is stored of them, and where prompts part in them."""

from dataclasses import replace

import numpy as np
import pytest
from chat_messages import A, U
from tplaudit.probes.attribution.prompt import Prompt
from tplaudit.probes.caches.stored_reply import opens_thinking, reply_of, stored_length, stores_thinking
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import StoredReply
from tplaudit.probes.templates.template import ChatTemplate

STEADY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Reasoning is not kept: the generation prompt opens a think block that history does not have.
STRIPS = STEADY.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
END = "<|im_end|>"
TOKENIZER = load_model(None).tokenizer
REPLY = A("It sails at nine.", reasoning_content="Look at the board.")
ASKED = (U("When does the ferry sail?"),)
THEN = U("And back?")


def template(text):
    return ChatTemplate({"default": text}, source="test", special_tokens={"eos_token": END})


def request(messages, reply=None, **kwargs):
    return Request(tuple(Message(each, at) for at, each in enumerate(messages)), reply=reply, kwargs=kwargs)


def prompt(text, reply, **kwargs):
    made, asked = template(text), request(ASKED, reply, **kwargs)
    rendered = made.render_request(asked)
    return Prompt(1, asked, asked, rendered, TOKENIZER.encode(rendered), made)


def reply(text, message, policy="as-is"):
    return reply_of(prompt(text, message), parse_policy(policy), TOKENIZER)


def replayed(text, requests, policy="vllm", **options):
    model = replace(load_model(None), template=template(text))
    transcript = Transcript("test", "openai-chat", lambda: iter(requests))
    run = Replay(transcript, model, [parse_policy(policy)], store="prompt+output", **options)
    for _ in run.turns():
        pass
    return run.report().policies[0].turns


def test_the_text_is_what_history_has_without_what_ends_the_turn():
    found = reply(STEADY, REPLY)
    assert (found.text, found.source) == (REPLY["content"], "text")
    assert np.array_equal(found.ids, TOKENIZER.encode(REPLY["content"]))


def test_reasoning_that_history_drops_was_generated_all_the_same():
    found = reply(STRIPS, REPLY)
    assert found.text == "Look at the board.\n</think>\n\nIt sails at nine."
    assert opens_thinking(prompt(STRIPS, REPLY))
    assert not opens_thinking(prompt(STEADY, REPLY))


def test_generated_ids_come_first_and_their_end_is_left_out():
    ids = TOKENIZER.encode("Nine.")
    generated = {**REPLY, "token_ids": [*map(int, ids), *map(int, TOKENIZER.encode(END))]}
    found = reply(STEADY, generated)
    assert (found.text, found.source) == ("Nine.", "generated")
    assert np.array_equal(found.ids, ids)


@pytest.mark.parametrize("message", [None, A("")])
def test_no_reply(message):
    assert reply(STEADY, message) is None


@pytest.mark.parametrize(
    ("cache", "kwargs", "stores"),
    [
        ("vllm", {}, True),
        ("paged", {}, False),
        ("fusion-mlx", {}, False),
        ("paged", {"preserve_thinking": True}, True),
    ],
)
def test_who_stores_replies_that_think(cache, kwargs, stores):
    made = prompt(STRIPS, REPLY, **kwargs)
    assert stores_thinking(cache, made.template, made) is stores


def test_a_stored_reply_is_shared_with_the_next_prompt():
    requests = [request(ASKED, REPLY), request((*ASKED, REPLY, THEN))]
    first, second = replayed(STEADY, requests)
    size = len(TOKENIZER.encode(REPLY["content"]))
    assert first.reply == StoredReply(size, "text")
    assert second.reply is None
    assert second.depth == first.prompt_tokens + size
    assert second.divergence is None
    assert second.reused == second.depth // 16 * 16
    assert second.avoidable == 0


def test_a_reply_that_the_server_leaves_out_is_reported():
    requests = [request(ASKED, REPLY), request((*ASKED, REPLY, THEN))]
    first, second = replayed(STRIPS, requests, "as-is")
    assert first.reply == StoredReply(0, "text")
    assert second.depth < first.prompt_tokens


def spelled(text):
    """Ids of the same characters, one token each."""
    return [int(each) for letter in text for each in TOKENIZER.encode(letter)]


def test_ids_that_were_generated_otherwise_part_where_the_text_goes_on_alike():
    written = {**REPLY, "token_ids": spelled(REPLY["content"])}
    requests = [request(ASKED, written), request((*ASKED, REPLY, THEN))]
    first, second = replayed(STEADY, requests)
    assert first.reply.source == "generated"
    parted = second.divergence
    assert (parted.cause, parted.confirmed, parted.stored_turn) == ("tokenizer-boundary", True, 1)
    assert first.prompt_tokens <= parted.tokens == second.depth < first.prompt_tokens + first.reply.tokens
    assert parted.stored_ids[0] == written["token_ids"][parted.tokens - first.prompt_tokens]
    assert parted.stored_ids[0] != parted.prompt_ids[0]


def test_the_same_prompt_again_parts_from_nothing():
    _, second = replayed(STEADY, [request(ASKED, REPLY), request(ASKED, REPLY)])
    assert second.depth == second.prompt_tokens
    assert second.divergence is None


@pytest.mark.parametrize("cacheable", [True, False])
def test_a_reply_that_thinks_is_stored_where_its_output_is_cacheable(cacheable):
    stored = stored_length(100, 40, open_think=True, output_cacheable=cacheable)
    assert stored == (140 if cacheable else 100)


@pytest.mark.parametrize("cacheable", [True, False])
def test_a_reply_that_does_not_think_is_stored(cacheable):
    assert stored_length(100, 40, output_cacheable=cacheable) == 140


def test_only_the_prompt_is_stored_where_that_was_asked_for():
    assert stored_length(100, 40, "prompt") == 100
    assert stored_length(100, 0) == 100
