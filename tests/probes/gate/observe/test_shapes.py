"""The conversations themselves."""

import re
from collections import Counter

from tplaudit import fixtures
from tplaudit.probes.conversation import Message
from tplaudit.probes.gate.observe.shapes import SHAPES, is_mid_system, words
from tplaudit.probes.gate.subject import Subject
from tplaudit.probes.models.template_files import load_template


def test_names_are_unique_and_grouped() -> None:
    names = [str(shape.subject()) for shape in SHAPES]
    assert len(names) == len(set(names))
    assert {shape.group for shape in SHAPES} == {"plain", "tools", "reasoning", "system"}
    assert all(not re.search("[@:]", name) for name in names)


def test_each_word_stands_in_one_message() -> None:
    for shape in SHAPES:
        counts = Counter(word for message in shape.messages for word in words(message))
        assert set(counts.values()) <= {1}, shape.name


def test_reasoning_has_no_words_that_must_be_written() -> None:
    message = {
        "role": "assistant",
        "content": "<think>\nzqlogzq\n</think>\n\nzqdeckzq",
        "reasoning": "zqnetzq",
    }
    assert words(message) == ("zqdeckzq",)


def test_requests_are_what_a_client_sends() -> None:
    loop = next(shape for shape in SHAPES if shape.subject() == Subject("tools", "loop"))
    ends = [[message.role for message in request.messages][-1] for request in loop.requests]
    assert ends == ["user", "tool", "tool", "user"]
    assert all(request.tools for request in loop.requests)
    continued = next(shape for shape in SHAPES if shape.partial)
    assert [request.partial for request in continued.requests] == [False, True]


def test_only_the_system_group_has_later_system_turns() -> None:
    for shape in SHAPES:
        messages = [Message(body, index) for index, body in enumerate(shape.messages)]
        middle = [index for index in range(len(messages)) if is_mid_system(messages, index)]
        assert bool(middle) == (shape.group == "system"), shape.name


def test_a_good_template_renders_all_but_images() -> None:
    template = load_template(fixtures.template("in-place"))
    for shape in SHAPES:
        if shape.name == "image":
            continue
        for request in shape.requests:
            prompt = template.render_request(request)
            assert all(word in prompt for message in request.messages for word in words(message.data)), (
                shape.name
            )
