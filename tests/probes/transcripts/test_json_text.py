import pytest
from tplaudit.probes.transcripts.json_text import is_unfinished, kind, parse_object


@pytest.mark.parametrize(
    ("text", "unfinished"),
    [("{", True), ('{"a": [1,', True), ('{"a": "b', False), ("{}", False), ("[1,", False), ("{]", False)],
)
def test_what_later_lines_may_end(text: str, unfinished: bool) -> None:
    assert is_unfinished(text) is unfinished


def test_half_of_an_emoji_is_replaced_wherever_it_stands() -> None:
    assert parse_object('{"\\ud83d": ["a\\ude00", {"b": "\\ud83d\\ude00"}]}', "file") == {
        "\ufffd": ["a\ufffd", {"b": "\U0001f600"}]
    }


def test_a_type_has_its_article() -> None:
    values = (None, True, "a", 1, 0.5, [], {})
    said = ["null", "a boolean", "a string", "a number", "a number", "an array", "an object"]
    assert [kind(value) for value in values] == said
