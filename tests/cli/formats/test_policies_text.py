from io import StringIO

from rich.console import Console
from tplaudit.cli.formats.policies_text import draw_one
from tplaudit.probes.policies.pages import page
from tplaudit.probes.policies.registry import POLICIES


def test_a_page_on_a_terminal_is_laid_out() -> None:
    console = Console(width=100, record=True, force_terminal=True, file=StringIO())
    draw_one(POLICIES["mtplx"], page("mtplx"), console)
    text = console.export_text()
    assert "## An example" not in text
    assert "An example" in text
    assert "-> hoisted 2: moved into the first system message" in text
