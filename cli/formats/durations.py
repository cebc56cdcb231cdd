"""Times in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: `0.042 s`, `38 s`, `12 min`, `3.4 h`."""
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
