import json
from pathlib import Path

from rendered_turns import drawn, report


def test_a_transcript_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    text = "\x1b]0;title\x07\x1b[2J[bold]x[/bold]\r\u202e"
    messages = [{"role": "user", "content": text}, {"role": "system", "content": f"later {text}"}]
    path.write_text(json.dumps({"messages": messages}))
    for policy in ("as-is", "hoist"):
        shown = drawn(report(path, "in-place", policy), full=True)
        assert "␛]0;title␇␛[2J[bold]x[/bold]␍" in shown
        assert not set(shown) & set("\x1b\x07\r\u202e")
