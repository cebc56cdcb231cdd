from __future__ import annotations

from typing import Any

from tplaudit.probes.attribution.kept_tokens import kept_tokens
from tplaudit.probes.attribution.prompt import Prompt
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization.tokens import CharacterTokenizer

STEADY = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
#: Earlier answers lose their text: every prompt is shorter than what it has of the one before.
STRIPPED = STEADY.replace("{{ m.content }}", "{{ m.content if m.role != 'assistant' or loop.last else '-' }}")

encode = CharacterTokenizer().encode


def _prompt(source: str, *texts: str) -> Prompt:
    roles = ("user", "assistant")
    messages = tuple(Message({"role": roles[at % 2], "content": text}, at) for at, text in enumerate(texts))
    template = ChatTemplate({"default": source}, source="test")
    request = Request(messages)
    text = template.render_request(request)
    return Prompt(1, request, request, text, encode(text), template)


def _kept(source: str, before: tuple[str, ...], now: tuple[str, ...], new: set[int], **more: Any) -> int:
    earlier, later = _prompt(source, *before), _prompt(source, *now)
    is_prefix = later.text.startswith(earlier.body)
    return kept_tokens(earlier, later, frozenset(new), is_prefix, encode)


def test_appended_messages_and_the_generation_prompt_are_new() -> None:
    before = ("One question?",)
    kept = _kept(STEADY, before, (*before, "An answer.", "Another question?"), {1, 2})
    assert kept == len("<user>One question?</>")


def test_a_text_that_was_stripped_leaves_what_is_new() -> None:
    before = ("One question?", "A long answer to it.", "Another question?")
    now = (*before, "Short.", "A third question?")
    assert _kept(STRIPPED, before, now, {3, 4}) == len(
        "<user>One question?</><assistant>-</><user>Another question?</>"
    )


def test_an_edited_message_is_new_where_it_stands() -> None:
    before = ("One question?", "An answer.", "Another question?")
    now = ("[cleared]", "An answer.", "Another question?", "Yes.", "Go on.")
    kept = _kept(STEADY, before, now, {0, 3, 4})
    assert kept == len("<user></><assistant>An answer.</><user>Another question?</>")


def test_nothing_new_but_the_generation_prompt() -> None:
    before = ("One question?",)
    assert _kept(STEADY, before, before, set()) == len("<user>One question?</>")
