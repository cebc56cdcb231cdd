"""A console on which texts of templates, transcripts and file names cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .formats.visible import visible


class SafeConsole(Console):
    """A console that prints control characters as visible ones, whatever they come in."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render; only what rich itself writes to steer the terminal stays as it is."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)
