"""`tplaudit render` as a person runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tplaudit.cli.formats import diff_text, prompt_text, render_text
from tplaudit.fixtures import template, transcript
from tplaudit.probes.attribution.render_report import RenderPlan, RenderReport, render_turns
from tplaudit.probes.attribution.text_spans import TextSpan
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import names, parse_policy
from tplaudit.probes.transcripts.reader import open_transcript

ROOT = Path(__file__).parents[2]
REMINDERS = ROOT / "docs" / "examples" / "reminders.jsonl"
CLAUDE = transcript("claude-code")
MESSAGES = transcript("claude-code-messages")


def report(requests: Path, name: str, *policies: str, **plan: object) -> RenderReport:
    made = [parse_policy(policy) for policy in policies]
    return render_turns(RenderPlan(open_transcript(requests), made, **plan), load_template(template(name)))


def drawn(report: RenderReport, *, width: int = 140, full: bool = False, colours: bool = False) -> str:
    console = Console(width=width, record=True, force_terminal=colours, file=StringIO())
    render_text.draw([report], console, full=full)
    return console.export_text(styles=colours)


def rows(text: str) -> dict[str, str]:
    """The table: the cells behind each verdict, with the rows that belong to it."""
    found: dict[str, str] = {}
    verdict = ""
    for line in text.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            verdict = cells[0] or verdict
            found[verdict] = f"{found.get(verdict, '')} {' '.join(cells[1:])}".strip()
    return found


# At a glance


def test_who_hoists_and_who_fails_before_a_strict_template() -> None:
    table = rows(drawn(report(CLAUDE, "strict", *names(), turn=12)))
    assert set(table) == {"↥ hoisted", "✗ fails"}
    for hoists in ("omlx", "omlx-strict", "hoist", "flyto-mlx", "fusion-mlx", "mtplx"):
        assert re.search(rf"\b{hoists}\b(?!-)", table["↥ hoisted"])
    for fails in ("as-is", "rapid-mlx", "mlx-lm", "llama-cpp", "vllm", "lm-studio"):
        assert fails in table["✗ fails"]
    assert "TemplateError: A system message is allowed only" in table["✗ fails"]
    assert "a note was refused at 6: omlx, note, note+merge" in table["↥ hoisted"]


@pytest.mark.parametrize(
    ("name", "verdict"), [("in-place", "✓ in place"), ("moving", "↷ moved"), ("dropping", "∅ lost")]
)
def test_what_the_template_does_with_what_servers_leave_in_place(name: str, verdict: str) -> None:
    table = rows(drawn(report(CLAUDE, name, *names(), turn=12)))
    assert "as-is, " in table[verdict]
    assert "hoist, hoist+merge" in table["↥ hoisted"]
    assert ("omlx-strict" in table[verdict]) is (name == "in-place")


def test_a_turn_whose_system_turns_fared_differently_names_them() -> None:
    text = drawn(report(MESSAGES, "in-place", "flyto-mlx", "vllm", turn=4))
    assert "✎ noted 1, 4, 10" in text
    assert "∅ dropped 7" in text
    assert "System turns that are not first: 1, 4, 7, 10" in text


def test_the_head_names_the_routes_that_count() -> None:
    assert "Route: messages (the request's own; choose another" in drawn(report(MESSAGES, "in-place", "omlx"))
    assert "Route: chat (the request" in drawn(report(CLAUDE, "in-place", "as-is", "vLLM", turn=2))
    assert "Route: none\n" in drawn(report(CLAUDE, "in-place", "omlx:route=none,engine=vlm", turn=2))
    several = drawn(report(MESSAGES, "in-place", "omlx", "hoist", "vllm:chat-completions", "sglang"))
    assert "Routes: messages for omlx, sglang; chat for vllm:chat-completions" in several
    assert "Route" not in drawn(report(CLAUDE, "in-place", "as-is", "llama-cpp", turn=2))


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


def test_the_table_fits_a_narrow_terminal() -> None:
    text = drawn(report(MESSAGES, "in-place", *names(), turn=10), width=80)
    assert max(len(line) for line in text.splitlines() if line.startswith(("│", "┏"))) <= 80
    assert "tokens" not in text


def test_without_system_turns_there_is_nothing_to_do(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello."}]}))
    assert "· nothing" in drawn(report(path, "strict", "omlx", "as-is"))


# One policy


def test_messages_actions_and_prompt() -> None:
    text = drawn(report(REMINDERS, "strict", "omlx", turn=1))
    assert "-     2 system     Plan mode is on." in text
    assert "+     1 user       text of messages 1, 2" in text
    assert "2: [System note]⏎Plan mode is on.⏎[/System note]" in text
    assert "noted 2: appended to the user turn before it (message 1)" in text
    assert "       0 │ Be brief.<|im_end|>" in text
    assert "       2 │ Plan mode is on." in text
    assert "         │ <|im_start|>assistant" in text


def test_the_prompt_is_shown_whole_and_nothing_is_lost_in_full() -> None:
    shown = report(CLAUDE, "in-place", "omlx", turn=12)
    lines = [line.partition("│ ")[2] for line in drawn(shown, full=True).split("Prompt (")[1].splitlines()]
    prompt = shown.turns[-1].policies[0].prompt
    assert prompt is not None
    assert [line.rstrip() for line in prompt.expandtabs(8).split("\n")][:40] == [
        line.rstrip() for line in lines[1:41]
    ]
    assert "more lines of this text" not in "".join(lines)


def test_long_texts_are_folded() -> None:
    shown = report(CLAUDE, "in-place", "omlx", turn=12)
    text = drawn(shown)
    assert "more lines of this text …" in text
    assert re.search(r"files, wi… \(2,480 characters\)", text)
    assert re.search(r"… \d+ unchanged messages …", drawn(report(CLAUDE, "in-place", "as-is", turn=12)))
    assert len(text) < len(drawn(shown, full=True)) * 0.75


def test_many_outcomes_are_shown_only_when_asked_for() -> None:
    shown = report(REMINDERS, "in-place", "as-is", "omlx", "hoist", "flyto-mlx", turn=3)
    assert "What was done" not in drawn(shown)
    full = drawn(shown, full=True)
    assert full.count("What was done") == 4
    assert "Prompt: the same as under omlx" in full


def test_colours_tell_messages_apart_and_special_tokens_are_reversed() -> None:
    text = drawn(report(REMINDERS, "strict", "omlx", turn=1), colours=True)
    assert "\x1b[36mBe brief." in text  # message 0
    assert "\x1b[35mWhat does the test say?" in text  # message 1
    assert "\x1b[7m<|im_start|>" in text


def test_a_transcript_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    text = "\x1b]0;title\x07\x1b[2J[bold]x[/bold]\r\u202e"
    messages = [{"role": "user", "content": text}, {"role": "system", "content": f"later {text}"}]
    path.write_text(json.dumps({"messages": messages}))
    for policy in ("as-is", "hoist"):
        shown = drawn(report(path, "in-place", policy), full=True)
        assert "␛]0;title␇␛[2J[bold]x[/bold]␍" in shown
        assert not set(shown) & set("\x1b\x07\r\u202e")


# Two compared


def test_two_policies(tplaudit) -> None:
    done = tplaudit("render", REMINDERS, "--turn", 1, "--diff", "omlx", "hoist")
    assert done.returncode == 0
    assert done.stdout.startswith("--- omlx, turn 1\n+++ hoist, turn 1\n@@ ")
    assert "\n-[/System note]<|im_end|>\n" in done.stdout


def test_two_turns_of_each_policy(tplaudit) -> None:
    done = tplaudit("render", REMINDERS, "--diff-turns", 2, 1, "-p", "note", "-p", "hoist", "--json")
    document = json.loads(done.stdout)
    assert [turn["turn"] for turn in document["turns"]] == [1, 2]
    assert [(diff["before"]["turn"], diff["after"]["turn"]) for diff in document["diffs"]] == [(2, 1)] * 2
    assert [diff["before"]["policy"] for diff in document["diffs"]] == ["note", "hoist"]
    for number, diff in enumerate(document["diffs"]):
        later, earlier = (document["turns"][n]["policies"][number]["prompt"] for n in (1, 0))
        assert later[: diff["shared_chars"]] == earlier[: diff["shared_chars"]]
        assert later[diff["shared_chars"]] != earlier[diff["shared_chars"]]
        assert diff["same"] is False


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


# JSON


@pytest.fixture(scope="module")
def document() -> dict:
    command = [sys.executable, "-m", "tplaudit.cli.app", "render", str(REMINDERS)]
    done = subprocess.run([*command, "--policy", "all", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_every_turn_and_policy_with_every_name(document: dict) -> None:
    assert document["schema"] == "tplaudit.render/2"
    assert document["tplaudit"]
    assert [turn["turn"] for turn in document["turns"]] == [1, 2, 3]
    needed = {"policy", "messages", "prompt", "chars", "body_chars", "tokens", "error", "notes"}
    for turn in document["turns"]:
        assert [row["policy"] for row in turn["policies"]] == list(names())
        for row in turn["policies"]:
            assert needed <= set(row)
            assert len(row["notes"]) == len(row["actions"])
            values = [row[key] for key in ("prompt", "chars", "body_chars", "tokens", "text_missing_of")]
            assert all((value is None) == (row["error"] is not None) for value in values)
            if row["prompt"] is not None:
                assert row["chars"] == len(row["prompt"]) >= row["body_chars"]
                assert 0 < row["tokens"] < row["chars"]


def test_one_turn_and_the_last_turn_without_json(tplaudit, document: dict) -> None:
    done = tplaudit("render", REMINDERS, "--policy", "all", "--turn", 2, "--json")
    assert json.loads(done.stdout)["turns"] == [document["turns"][1]]
    assert "Turn 3 of " in tplaudit("render", REMINDERS, "-p", "hoist").stdout


def test_a_folder_of_templates(tplaudit, tmp_path: Path) -> None:
    (tmp_path / "b.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (tmp_path / "a.jinja").write_bytes(b"\xff")
    done = tplaudit("render", REMINDERS, "-p", "as-is", "--model", tmp_path, "--turn", 1, "--json")
    bad, good = json.loads(done.stdout)["results"]
    assert done.returncode == 0
    assert bad["template"].endswith("a.jinja")
    assert "a.jinja" in bad["error"]
    assert good["turns"][0]["policies"][0]["prompt"] == "Be brief.What does the test say?Plan mode is on."
    assert "b.jinja" in tplaudit("render", REMINDERS, "-p", "as-is", "--model", tmp_path).stdout


@pytest.mark.skipif(find_spec("ggufdoctor") is None, reason="the extra llamacpp is not installed")
def test_the_other_engine(tplaudit, tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    turns = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    path.write_text(turns + "{{ strftime_now('%Y') }}{{ pad_token is defined }}")
    options = ("--model", path, "-p", "as-is", "--engine", "llamacpp", "--turn", 1)
    done = tplaudit("render", REMINDERS, *options, "--json")
    row = json.loads(done.stdout)["turns"][0]["policies"][0]
    assert row["llamacpp"]["engine"].startswith("llama.cpp b")
    assert row["llamacpp"]["transformers"].endswith("2026False")
    assert row["llamacpp"]["llamacpp"].endswith("2026True")
    at = row["llamacpp"]["difference"]["offset"]
    text = tplaudit("render", REMINDERS, *options).stdout
    assert f"≠ from character {at:,} on" in text
    assert "-2026False\n" in text
    assert "+2026True\n" in text


# Errors and exit codes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--turn", 9), "there is no turn 9, only 3; give a smaller number"),
        (("--diff-turns", 1, 4), "there is no turn 4, only 3"),
        (("--diff-turns", 0, 1), "--diff-turns: turns count from 1"),
        (("--diff-turns", 1, 2, "--turn", 1), "--diff-turns: it names the turns already; leave out --turn"),
        (("--diff", "omlx", "hoist", "-p", "note"), "--diff: it names the policies already"),
        (("--diff", "omlx", "hoist", "--diff-turns", 1, 2), "--diff: two policies and two turns"),
        (("--diff", "omlx", "all"), "there is no policy 'all'"),
        (("--policy", "hoist:x=1"), "the policy hoist has no option 'x'"),
        (("--model", "missing.jinja"), "missing.jinja"),
    ],
)
def test_errors_are_one_line(tplaudit, options: tuple[object, ...], words: str) -> None:
    done = tplaudit("render", REMINDERS, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tplaudit: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_rendered_is_reported_and_exit_code_2(tplaudit) -> None:
    done = tplaudit("render", REMINDERS, "-p", "as-is", "--json", "--turn", 1)
    assert done.returncode == 2
    row = json.loads(done.stdout)["turns"][0]["policies"][0]
    assert row["prompt"] is row["text_missing_of"] is None
    assert row["error"].startswith("TemplateError: ")
    assert done.stderr.startswith("tplaudit: no turn rendered under any policy (TemplateError: ")


def test_heavy_libraries_are_not_loaded_for_a_bare_template() -> None:
    code = (
        "import sys; from tplaudit.cli.app import app\n"
        f"try: app(['render', {str(REMINDERS)!r}, '--model', {str(template('in-place'))!r}])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('mlx', 'numpy', 'tokenizers', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "✓ in place" in done.stdout


def test_output_file(tplaudit, tmp_path: Path) -> None:
    out = tmp_path / "x.diff"
    done = tplaudit("render", REMINDERS, "--turn", 1, "--diff", "omlx", "hoist", "--output", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert out.read_text().startswith("--- omlx, turn 1\n")


def test_a_model_that_is_no_template_is_told_first(tplaudit, tmp_path):
    empty = tmp_path / "empty.jinja"
    empty.write_text("")
    done = tplaudit("render", transcript("chat"), "--model", empty)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the template renders nothing" in done.stderr


def test_it_runs_without_stderr(tplaudit):
    code = "import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", code, "-m", "tplaudit.cli.app", "render", transcript("chat"), "--json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)
