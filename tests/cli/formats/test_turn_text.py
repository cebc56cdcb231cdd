from commands import CLEARING


def test_explain_prints_one_turn_in_full(tplaudit) -> None:
    done = tplaudit(*CLEARING, "--policy", "llama-cpp:reasoning_preserve=off", "--explain", "3")
    assert done.returncode == 0, done.stderr
    shown, other = done.stdout.split("turn 3, policy ")[1:]
    assert shown.startswith("as-is")
    for words in (
        "from turn 2 at token 147, character 147, in block 9 of 16 tokens",
        "message 2 (assistant), header, template line 18",
        "message 2 (assistant), reasoning, template line 13 in the stored prompt",
        "thinking-stripped (confirmed): the template no longer writes the reasoning of message 2",
        "clear_thinking=false: saves 52 tokens",
        '"chat_template_kwargs": {"clear_thinking": false} in every request',
        "cache-granularity: 3 shared tokens are not reused",
    ):
        assert words in shown
    stored, now, marks = (
        next(line for line in shown.splitlines() if line.startswith(f"  {name:<9} ") and sign in line)
        for name, sign in (("stored", "<think>"), ("now", "<call>"), ("", "^"))
    )
    at = marks.index("^")
    assert stored[12:at] == now[12:at]
    assert stored[at:].startswith("think>")
    assert "llama-server … --chat-template-kwargs '{\"clear_thinking\": false}'" in other


def test_explain_names_a_turn_that_is_not_there(tplaudit) -> None:
    done = tplaudit(*CLEARING, "--explain", "9")
    assert done.returncode == 2
    assert "there is no turn 9" in done.stderr
    assert "from 1 to 4" in done.stderr
