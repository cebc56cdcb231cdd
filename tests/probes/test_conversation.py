from typing import Any

from tplaudit.probes.conversation import Message, Request, written_alike
from tplaudit.probes.templates.template import ChatTemplate


def template(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, source="test")


def request(*contents: Any, **more: Any) -> Request:
    roles = ("user", "assistant")
    return Request(
        tuple(Message({"role": roles[at % 2], "content": each}, at) for at, each in enumerate(contents)),
        **more,
    )


def test_equal_means_written_alike() -> None:
    source = template("{{ messages[0].content | tojson }}{{ flag }}")
    assert source.render_request(request({"a": 1, "b": 2})) != source.render_request(
        request({"b": 2, "a": 1})
    )
    one, other = request("x", kwargs={"flag": 1}), request("x", kwargs={"flag": True})
    assert source.render_request(one) != source.render_request(other)
    assert not written_alike({"a": 1}, {"a": True})
    assert not written_alike({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert written_alike({"a": [1, None, "x"]}, {"a": (1, None, "x")})


def test_a_request_shares_what_it_repeats() -> None:
    earlier = request("one", "two")
    later = request("one", "changed", "three").sharing(earlier)
    assert later.messages[0] is earlier.messages[0]
    assert later.messages[1] is not earlier.messages[1]
    assert [each.data["content"] for each in later.messages] == ["one", "changed", "three"]
