from io import StringIO

from rendered_turns import REMINDERS, report
from rich.console import Console
from tplaudit.cli.formats import diff_text


def test_a_missing_or_the_same_prompt_is_said() -> None:
    missing = report(REMINDERS, "strict", "hoist", "as-is", turn=1, diff=True)
    error = "TemplateError: A system message is allowed only as the first message."
    assert diff_text.plain([missing]) == f"as-is, turn 1 gave no prompt: {error}\n"
    assert missing.diffs[0].unified is None
    same = report(REMINDERS, "strict", "hoist", "hoist", turn=1, diff=True)
    assert diff_text.plain([same]) == (
        "hoist, turn 1 and hoist, turn 1 give the same prompt (138 characters).\n"
    )


def test_a_diff_is_coloured_on_a_terminal() -> None:
    console = Console(width=100, record=True, force_terminal=True, file=StringIO())
    diff_text.draw([report(REMINDERS, "strict", "omlx", "hoist", turn=1, diff=True)], console)
    text = console.export_text(styles=True)
    assert "\x1b[31m-[System note]" in text
    assert "\x1b[32m+Plan mode is on.<|im_end|>" in text
