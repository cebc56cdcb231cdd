"""What a check or a change is about."""

import pytest
from tplaudit.probes.gate.subject import Subject, read_subject


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (Subject("placements"), "placements"),
        (Subject("tools", "round"), "tools/round"),
        (Subject("tools", "round", "raw", "rag"), "rag:tools/round@raw"),
        (Subject("user", "tail,no-leading", "effort=a:b"), "user/tail,no-leading@effort=a:b"),
        (Subject("thinking", view="rag"), "rag:thinking"),
    ],
)
def test_the_text_leaves_out_what_is_empty(subject: Subject, text: str) -> None:
    assert str(subject) == text
    if not subject.view:
        assert read_subject(text) == subject


def test_the_usual_way_and_the_check() -> None:
    subject = Subject("tools", "round", "raw", "rag")
    assert subject.usual == subject.check == Subject("tools", "round", view="rag")
    assert Subject("user", "tail", "raw", "rag").check == Subject("placements", view="rag")
    assert Subject("thinking", "reasoning_content", "raw").check == Subject("thinking")


def test_a_variant_with_a_colon_is_no_view() -> None:
    assert Subject("plain", "chat", "date=12:30").names == (
        "plain/chat@date=12:30",
        "plain/chat",
        "plain/chat@date=12:30",
        "plain/chat",
        "plain",
    )
