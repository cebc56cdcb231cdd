from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.rendering import Profile, PromptText, RenderTask
from tplaudit.probes.templates.template import ChatTemplate

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


def test_several_renders_are_what_each_is_alone() -> None:
    text = LOOP + "{% if messages | length == 2 %}{{ 1 // 0 }}{% endif %}{{ strftime_now('%S') if x }}"
    tasks = [
        RenderTask(request()),
        RenderTask(request(), add_generation_prompt=False),
        RenderTask(request(), profile="raw", text="first"),
        RenderTask(request(MESSAGES[:2])),
        RenderTask(request(kwargs={"messages": []})),
        RenderTask(request(), text="last"),
        RenderTask(request(), text="last"),
        RenderTask(request(kwargs={"x": 1}, now=datetime(2026, 1, 1))),
    ]
    together = template(text).render_many(tasks)
    alone = [template(text).render_many([task])[0] for task in tasks]
    assert [said(each) for each in together] == [said(each) for each in alone]
    kinds = [each.kind if isinstance(each, RenderError) else each.text[-3:] for each in together]
    assert kinds[3:5] == ["ZeroDivisionError", "TypeError"]
    assert isinstance(together[5], PromptText) and together[5].place is not None
    start, end = together[5].place.start, together[5].place.end
    assert together[5].place.line == 8 and "last" in together[5].text[start:end]


def said(outcome: PromptText | RenderError) -> object:
    if isinstance(outcome, RenderError):
        return (outcome.kind, outcome.message, outcome.line)
    return (outcome.text, outcome.place)


#: Short texts and few keys, so that equal messages, equal values of other types, and parts in common turn up.
VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.0, 2**70, "", "a", "é\ud800", "x" * 300]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
CONVERSATIONS = st.lists(
    st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": VALUES}), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)
WRITE_ALL = "{% for m in messages %}{{ m }}|{{ m.content is boolean }}{% endfor %}{{ tools }}{{ x }}"


@given(CONVERSATIONS, VALUES)
def test_what_is_not_sent_again_is_rendered_as_if_it_were(
    conversations: list[list[dict[str, Any]]], value: Any
) -> None:
    for messages in conversations:
        given = Request(
            tuple(Message(message, index) for index, message in enumerate(messages)), (TOOL,), {"x": value}
        )
        written = (f"{message}|{isinstance(message['content'], bool)}" for message in messages)
        assert KEPT.render_request(given, profile="raw") == f"{''.join(written)}[{TOOL}]{value}"


KEPT = template(WRITE_ALL)


def test_the_process_that_asks_does_not_import_jinja() -> None:
    code = (
        "import sys\n"
        "from tplaudit.probes.placements.report import probe\n"
        "from tplaudit.probes.models.template_files import load_template\n"
        "from tplaudit.fixtures import TEMPLATES\n"
        "probe(load_template(next(TEMPLATES.glob('*.jinja'))))\n"
        "print(sorted({'jinja2', 'transformers', 'mlx', 'mlx_lm', 'numpy'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
