import re

from rendered_turns import CLAUDE, REMINDERS, drawn, report


def test_messages_actions_and_prompt() -> None:
    text = drawn(report(REMINDERS, "strict", "omlx", turn=1))
    assert "-     2 system     Plan mode is on." in text
    assert "+     1 user       text of messages 1, 2" in text
    assert "2: [System note]⏎Plan mode is on.⏎[/System note]" in text
    assert "noted 2: appended to the user turn before it (message 1)" in text
    assert "       0 │ Be brief.<|im_end|>" in text
    assert "       2 │ Plan mode is on." in text
    assert "         │ <|im_start|>assistant" in text


def test_long_texts_are_folded() -> None:
    shown = report(CLAUDE, "in-place", "omlx", turn=12)
    text = drawn(shown)
    assert "more lines of this text …" in text
    assert re.search(r"files, wi… \(2,480 characters\)", text)
    assert re.search(r"… \d+ unchanged messages …", drawn(report(CLAUDE, "in-place", "as-is", turn=12)))
    assert len(text) < len(drawn(shown, full=True)) * 0.75
