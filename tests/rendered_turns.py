"""Reports of `render` on the bundled sessions, and their text on a terminal."""

from io import StringIO
from pathlib import Path

from rich.console import Console
from tplaudit.cli.formats import render_text
from tplaudit.fixtures import template, transcript
from tplaudit.probes.attribution.render_report import RenderPlan, RenderReport, render_turns
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.transcripts.reader import open_transcript

ROOT = Path(__file__).parents[1]
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
