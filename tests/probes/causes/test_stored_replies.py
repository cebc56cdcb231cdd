"""Prompts that part from a stored reply: what is proved, what is said, and what a remedy wins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization.tokens import common_prefix_ids

END = "<|im_end|>"
REASONING = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
CALLS = (
    '{% for c in m.tool_calls or [] %}<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{% if c.function.arguments is string %}{{ c.function.arguments }}"
    "{% else %}{{ c.function.arguments | tojson }}{% endif %}}\n</tool_call>{% endfor %}"
)


def turns(reasoning=REASONING, content="{{ m.content }}"):
    return (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n" + reasoning + content + CALLS + "<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


KEEPS = turns()
# Qwen3: reasoning stays as long as no user turn follows.
STRIPS = turns(REASONING.replace("if m.", "if loop.index0 > ns.last and m."))
# Qwen3.6: a switch keeps it.
SWITCHES = turns(REASONING.replace("if m.", "if (preserve_thinking or loop.index0 > ns.last) and m."))
NEVER = turns("")
TRIMS = turns(content="{{ m.content | trim }}")
SHOUTS = turns(content="{{ m.content | upper if m.role == 'assistant' else m.content }}")
# Mistral: nothing stands before a reply.
BARE = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)

MODEL = load_model(None)
ASKED = ({"role": "user", "content": "When does the ferry to Havn sail?"},)
THEN = {"role": "user", "content": "And back?"}
THOUGHT = "Look at the board: it says nine, but the tide is late today."
REPLY = {"role": "assistant", "content": "It sails at nine.", "reasoning_content": THOUGHT}
PLAIN = {"role": "assistant", "content": "It sails at nine."}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Nine."}


def calling(arguments):
    function = {"name": "board", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def generated(text, message):
    ids = MODEL.tokenizer.encode(text)
    return {**message, "token_ids": [*map(int, ids), *map(int, MODEL.tokenizer.encode(END))]}


def parted(text, reply, *history, asked=ASKED, policy="as-is", **options):
    """What is said of the second prompt, and the stored ids and its own."""
    template = ChatTemplate({"default": text}, source="test", special_tokens={"eos_token": END})
    requests = [
        Request(tuple(Message(each, at) for at, each in enumerate(messages)), reply=given)
        for messages, given in ((asked, reply), ((*asked, *history), None))
    ]
    transcript = Transcript("test", "openai-chat", lambda: iter(requests))
    model = replace(MODEL, template=template)
    run = Replay(transcript, model, [parse_policy(policy)], store="prompt+output", **options)
    for _ in run.turns():
        pass
    return run.report().policies[0].turns[1].divergence


def rendered(text, messages, **kwargs):
    return ChatTemplate({"default": text}, source="test").render(messages, kwargs=kwargs)


def ids(text):
    return MODEL.tokenizer.encode(text)


def test_the_client_does_not_send_the_reasoning_back():
    found = parted(KEEPS, REPLY, PLAIN, THEN)
    assert (found.cause, found.confirmed) == ("client-reasoning-dropped", True)
    assert f"{len(THOUGHT)} characters are missing" in found.evidence
    assert "the reply went on with '<think>" in found.evidence
    assert "history goes on with 'It sails at nine." in found.evidence
    stored = [*ids(rendered(KEEPS, ASKED)), *ids(f"<think>\n{THOUGHT}\n</think>\n\nIt sails at nine.")]
    kept = common_prefix_ids(ids(rendered(KEEPS, (*ASKED, REPLY, THEN))), stored)
    assert (found.remedy.kind, found.remedy.tokens) == ("client", kept - found.tokens)
    assert found.tokens == common_prefix_ids(ids(rendered(KEEPS, (*ASKED, PLAIN, THEN))), stored)
    assert [(link.cause, link.confirmed) for link in found.chain] == [(found.cause, True)]


def test_the_template_strips_it_once_a_user_follows():
    found = parted(STRIPS, REPLY, REPLY, THEN)
    assert (found.cause, found.confirmed) == ("thinking-stripped", True)
    assert f"the reasoning of message 1 in history, {len(THOUGHT)} characters" in found.evidence
    assert found.remedy.kind == "template" and found.remedy.tokens > 0
    assert parted(STRIPS, calling({}) | {"reasoning_content": THOUGHT}, calling({}), RESULT).cause == (
        "client-reasoning-dropped"
    )


def test_a_switch_of_the_template_keeps_it():
    found = parted(SWITCHES, REPLY, REPLY, THEN)
    assert (found.cause, found.confirmed) == ("thinking-stripped", True)
    assert (found.remedy.kind, found.remedy.set) == ("kwarg", "preserve_thinking=true")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [(SWITCHES, ("kwarg", "preserve_thinking=true, and reasoning sent back")), (STRIPS, ("template", None))],
)
def test_client_and_template_both_leave_it_out(text, remedy):
    found = parted(text, REPLY, PLAIN, THEN)
    assert (found.cause, found.confirmed) == ("client-reasoning-dropped", True)
    assert "and the template would not write it" in found.evidence
    assert found.remedy.kind == remedy[0] and found.remedy.set == (remedy[1] or found.remedy.set)
    assert found.remedy.tokens > 0


def test_the_template_never_writes_what_the_model_thought():
    thinking = generated(f"<think>\n{THOUGHT}\n</think>\n\nIt sails at nine.", REPLY)
    found = parted(NEVER, thinking, REPLY, THEN)
    assert (found.cause, found.confirmed) == ("thinking-stripped", True)


def test_the_client_writes_arguments_otherwise():
    found = parted(KEEPS, calling('{"port":"Havn"}'), calling('{"port": "Havn"}'), RESULT)
    assert (found.cause, found.confirmed) == ("tool-arguments-reserialised", True)
    assert "with the same meaning" in found.evidence
    assert """the reply went on with '"Havn"}}""" in found.evidence
    assert found.remedy.kind == "client"


def test_the_template_writes_arguments_otherwise_than_the_model():
    text = '<tool_call>\n{"name": "board", "arguments": {"port":"Havn"}}\n</tool_call>'
    message = calling({"port": "Havn"})
    found = parted(KEEPS, generated(text, message), message, RESULT)
    assert (found.cause, found.confirmed) == ("tool-arguments-reserialised", True)
    assert "in another form than the model" in found.evidence
    assert found.remedy.kind == "template"
    assert found.remedy.tokens == len(ids(text)) - (found.tokens - len(ids(rendered(KEEPS, ASKED))))


def test_the_template_writes_the_reply_in_another_form():
    message = calling({})
    found = parted(KEEPS, generated("I call board().", message), message, RESULT)
    assert (found.cause, found.confirmed) == ("reply-rewritten", True)


@pytest.mark.parametrize(
    ("text", "template", "rest"),
    [
        ("It sails at nine.\n\n", KEEPS, "'\\n\\n'"),
        ("\n It sails at nine.", TRIMS, "'\\n It sails at nine.'"),
        ("It sails at nine.<|endoftext|>", KEEPS, "'<|endoftext|>'"),
    ],
    ids=["line feeds behind", "white space before", "another mark behind"],
)
def test_white_space_and_marks_around_a_reply(text, template, rest):
    found = parted(template, generated(text, PLAIN), PLAIN, THEN)
    assert (found.cause, found.confirmed) == ("reply-rewritten", True)
    assert "began or ended with white space or a mark" in found.evidence
    assert f"the reply went on with {rest}" in found.evidence


def test_the_client_changed_the_reply():
    found = parted(KEEPS, PLAIN, {"role": "assistant", "content": "It sails at ten."}, THEN)
    assert (found.cause, found.confirmed) == ("history-rewritten", True)
    assert found.stored.startswith("nine.")
    assert found.prompt.startswith("ten.")
    assert (found.message.index, found.was.message.index) == (1, 1)
    found = parted(KEEPS, PLAIN, {"role": "assistant", "content": "No."}, THEN, causes=False)
    assert (found.cause, found.evidence, found.chain) == (None, None, ())


def test_a_reply_that_the_client_does_not_send_back_blames_nobody():
    assert parted(BARE, PLAIN, THEN) is None


def test_keys_that_history_does_not_have_are_no_change():
    reply = {**PLAIN, "refusal": None, "annotations": [], "token_ids": [*map(int, ids("It sails at noon."))]}
    found = parted(KEEPS, reply, PLAIN, THEN)
    assert (found.cause, found.confirmed) == ("reply-rewritten", True)


def test_ids_come_before_characters():
    spelled = [int(each) for letter in "It sails at nine." for each in ids(letter)]
    other = {"role": "assistant", "content": "It sails at ten."}
    found = parted(KEEPS, {**PLAIN, "token_ids": spelled}, other, THEN)
    assert (found.cause, found.confirmed) == ("tokenizer-boundary", True)
    assert found.stored_ids[0] != found.prompt_ids[0]
    assert str(found.stored_ids[0]) in found.evidence


def test_what_nothing_proves_stays_unproved():
    found = parted(SHOUTS, generated("It sails at nine.", PLAIN), PLAIN, THEN)
    assert (found.cause, found.confirmed) == ("other", False)
    assert (
        "the reply went on with 't sails at nine.', history goes on with 'T SAILS AT NINE." in found.evidence
    )
    assert found.remedies == ()


@pytest.mark.parametrize("policy", ["omlx", "vllm", "llama-cpp", "rapid-mlx"])
def test_a_server_that_converts_replies(policy):
    found = parted(KEEPS, PLAIN, {"role": "assistant", "content": "It sails at ten."}, THEN, policy=policy)
    assert (found.cause, found.confirmed) == ("history-rewritten", True)


def test_ids_that_still_diverge_where_every_character_is_alike():
    # Qwen3: replies are asked for inside a think block, and an empty one has two line feeds in one token.
    block = REASONING.replace(
        "{% if m.reasoning_content %}", "{% if m.role == 'assistant' and preserve_thinking %}"
    )
    opens = turns(block).replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    model = replace(MODEL, template=ChatTemplate({"default": opens}, source="test"))
    requests = [
        Request(tuple(Message(each, at) for at, each in enumerate(messages)), reply=reply)
        for messages, reply in ((ASKED, PLAIN), ((*ASKED, PLAIN, THEN), None))
    ]
    run = Replay(
        Transcript("test", "openai-chat", lambda: iter(requests)),
        model,
        [parse_policy("rapid-mlx")],
        store="prompt+output",
    )
    for _ in run.turns():
        pass
    turn = run.report().policies[0].turns[1]
    chain = turn.divergence.chain
    assert [link.cause for link in chain] == ["thinking-stripped", "tokenizer-boundary"]
    assert chain[0].remedy is None or not chain[0].remedy.saves
    assert chain[1].saves > 0
    assert turn.explained == turn.avoidable > 0
    ids = model.tokenizer.encode("\n\n"), model.tokenizer.encode("\n")
    assert str(int(ids[0][0])) in chain[1].evidence and str(int(ids[1][0])) in chain[1].evidence
