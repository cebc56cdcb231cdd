import time
from io import StringIO

from rendered_turns import CLAUDE, REMINDERS, drawn, report
from rich.console import Console
from tplaudit.cli.formats import prompt_text
from tplaudit.probes.attribution.text_spans import TextSpan


def test_a_long_prompt_is_drawn_in_time_that_grows_with_its_length() -> None:
    def seconds(lines: int) -> float:
        text = "<|im_start|>some words of a line\n" * lines
        spans = [TextSpan(at * 33 + 12, at * 33 + 32, at, at, "content") for at in range(lines)]
        console = Console(width=100, file=StringIO())
        started = time.perf_counter()
        prompt_text.draw_prompt(text, spans, ["<|im_start|>"], console, full=False)
        return time.perf_counter() - started

    few, many = min(seconds(200) for _ in range(3)), seconds(4000)
    assert many < 100 * few  # 20 times the lines; where every line is cut out of the whole it is 350 times


def test_a_part_of_a_prompt_keeps_its_styles() -> None:
    console = Console(width=100, record=True, force_terminal=True, color_system="standard", file=StringIO())
    spans = [TextSpan(2, 9, 0, 0, "content"), TextSpan(11, 16, 1, 1, "content")]
    prompt_text.draw_prompt("<>one\ntwo<>three", spans, ["<>"], console, full=True)
    text = console.export_text(styles=True)
    first, second = text.splitlines()
    assert first.endswith("\x1b[7m<>\x1b[0m\x1b[36mone\x1b[0m")
    assert second.endswith("\x1b[36mtwo\x1b[0m\x1b[7m<>\x1b[0m\x1b[35mthree\x1b[0m")


def test_the_prompt_is_shown_whole_and_nothing_is_lost_in_full() -> None:
    shown = report(CLAUDE, "in-place", "omlx", turn=12)
    lines = [line.partition("│ ")[2] for line in drawn(shown, full=True).split("Prompt (")[1].splitlines()]
    prompt = shown.turns[-1].policies[0].prompt
    assert prompt is not None
    assert [line.rstrip() for line in prompt.expandtabs(8).split("\n")][:40] == [
        line.rstrip() for line in lines[1:41]
    ]
    assert "more lines of this text" not in "".join(lines)


def test_colours_tell_messages_apart_and_special_tokens_are_reversed() -> None:
    text = drawn(report(REMINDERS, "strict", "omlx", turn=1), colours=True)
    assert "\x1b[36mBe brief." in text  # message 0
    assert "\x1b[35mWhat does the test say?" in text  # message 1
    assert "\x1b[7m<|im_start|>" in text
