"""PromptBoundaries of prompts, read from renders."""

from dataclasses import replace

import numpy as np
from chat_messages import A, S, U
from token_ids import HYBRID
from tplaudit.probes.attribution.prompt import Prompt
from tplaudit.probes.caches.prompt_boundaries import BoundaryFinder, occurrences
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.models.layers import Layers
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization.files import load_tokenizer_named
from tplaudit.probes.tokenization.tokens import IncrementalEncoder

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if think %}<think>\n{% endif %}{% endif %}"
)
CHAT = [S("Be brief."), U("One?"), A("1"), U("Two?")]


def prompt(messages, text=TEMPLATE, **kwargs):
    template = ChatTemplate({"default": text}, source="test")
    request = Request(tuple(Message(each, at) for at, each in enumerate(messages)), kwargs=kwargs)
    text = template.render_request(request)
    return Prompt(1, request, request, text, encoder().encode(text), template)


def encoder():
    return IncrementalEncoder(load_tokenizer_named("characters"))


def test_positions_are_where_the_texts_stand():
    made = prompt(CHAT, think=True)
    marks = BoundaryFinder(encoder(), HYBRID).read(made, replied=True)
    assert marks.prompt_tokens == len(made.text)
    assert marks.generation_prompt == made.text.index("[assistant]<think>")
    assert marks.think_start == made.text.index("<think>")
    assert marks.turn_end == marks.generation_prompt
    assert marks.user_headers == tuple(made.text.index(f"[user]{each}") for each in ("One?", "Two?"))
    assert marks.system_prefix == 0
    # An empty user turn shares its header.
    assert marks.system_end == made.text.index("One?")
    assert marks.ends_in_user
    assert not marks.persists


def test_a_generation_prompt_that_stays_persists():
    marks = BoundaryFinder(encoder(), HYBRID).read(prompt(CHAT))
    assert marks.persists
    assert (marks.think_start, marks.prompt_tokens) == (None, None)


def test_tool_results_written_as_user_turns_are_user_turns_to_llama_cpp():
    text = TEMPLATE.replace("[{{ m.role }}]", "[{{ 'user' if m.role == 'tool' else m.role }}]")
    messages = [*CHAT, A("call"), {"role": "tool", "content": "3"}]
    made = prompt(messages, text)
    marks = BoundaryFinder(encoder(), HYBRID).read(made)
    assert marks.user_headers == tuple(made.text.index(f"[user]{each}") for each in ("One?", "Two?", "3"))


def test_occurrences():
    assert occurrences(np.array([1, 1]), np.array([1, 1, 1, 2, 1, 1])) == (0, 1, 4)
    assert occurrences(np.array([], np.int32), np.array([1])) == ()
    assert occurrences(np.array([1, 2]), np.array([1])) == ()


def test_nothing_is_looked_for_where_layers_can_be_cut():
    made = replace(prompt(CHAT), template=None)
    marks = BoundaryFinder(encoder(), Layers()).read(made)
    assert (marks.generation_prompt, marks.user_headers, marks.system_end) == (None, (), 0)
    assert marks.ends_in_user
    assert not BoundaryFinder(encoder(), Layers()).read(prompt(CHAT[:3])).ends_in_user


def test_a_template_that_refuses_the_beginning_gives_no_position():
    strict = "{% if messages | length < 4 %}{{ raise_exception('more') }}{% endif %}" + TEMPLATE
    made = prompt(CHAT)
    made = replace(made, template=ChatTemplate({"default": strict}, source="test"))
    marks = BoundaryFinder(encoder(), HYBRID).read(made)
    assert (marks.user_headers, marks.system_end) == ((), 0)
    assert marks.generation_prompt == made.text.rindex("[assistant]")


def test_a_leading_developer_message_is_no_system_segment():
    marks = BoundaryFinder(encoder(), HYBRID).read(
        prompt([{"role": "developer", "content": "Be brief."}, U("1")])
    )
    assert marks.system_end == 0


def test_where_the_next_turn_parts_from_a_prompt():
    # Where history has the reasoning mark, the turn ends where the text of the last question does not differ.
    lasting = TEMPLATE.replace("{{ m.content }}\n", "{{ m.content }}{% if not loop.last %}\n{% endif %}")
    for text, behind in ((TEMPLATE, "Two?\n"), (lasting, "Two?")):
        made = prompt(CHAT, text)
        marks = BoundaryFinder(encoder(), HYBRID).read(made)
        assert made.text[: marks.turn_end].endswith(behind)
    # A template that writes what is last otherwise: the text of the last user message is what can change.
    late = TEMPLATE.replace(
        "{{ m.content }}", "{% if loop.last and not add_generation_prompt %}!{% endif %}{{ m.content }}"
    )
    made = prompt(CHAT, late)
    assert BoundaryFinder(encoder(), HYBRID).read(made).turn_end == made.text.index("Two?")
    assert BoundaryFinder(encoder(), HYBRID).read(prompt([S("Be brief.")])).turn_end == 0


def test_the_system_prefix_is_that_of_all_system_messages():
    def prefix(messages, **fields):
        made = prompt(messages)
        finder = BoundaryFinder(encoder(), Layers(), system_prefix=lambda request: bool(request.messages))
        return finder.read(made).system_prefix, made.text

    length, text = prefix([S("Be very brief."), *CHAT[1:]])
    assert text[:length] == "[system]Be very brief.\n[user]"
    assert prefix([S("Be very brief."), *CHAT[1:], S("Now.")])[0] == 0  # the render of both has them in front
    assert prefix(CHAT[1:])[0] == prefix([S("")])[0] == 0
    made = prompt(CHAT)
    finder = BoundaryFinder(encoder(), Layers(), system_prefix=lambda request: False)
    assert finder.read(made).system_prefix == 0
