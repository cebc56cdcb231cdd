import json

from commands import CLEARING


def test_the_table_names_cause_and_remedy(tplaudit) -> None:
    done = tplaudit(*CLEARING)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("│   3 │"))
    assert "message 2 assistant" in row
    assert "thinking-stripped" in row
    assert "clear_thinking=false" in row
    assert "Remedy: clear_thinking=false" in done.stdout.replace("\n", " ")
    assert "warning history-stripped (as-is)" in done.stdout


def test_without_causes_the_table_shows_both_texts(tplaudit) -> None:
    done = tplaudit(*CLEARING, "--no-causes")
    assert "first divergence from what its predecessor stored" in done.stdout
    assert "stored 'think>" in done.stdout
    report = json.loads(tplaudit(*CLEARING, "--no-causes", "--json").stdout)
    turns = report["policies"][0]["turns"]
    assert all(turn["divergence"]["cause"] is None for turn in turns if turn["divergence"])
    assert all(turn["since_previous"]["cause"] is None for turn in turns if turn["since_previous"])
    explained = json.loads(tplaudit(*CLEARING, "--json").stdout)["policies"][0]["turns"]
    names = ("reused", "reprefill", "avoidable", "depth")
    assert [[turn[name] for name in names] for turn in turns] == [
        [turn[name] for name in names] for turn in explained
    ]
