"""What is known about each policy: the facts that its module states, and its page of docs/policies."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

from .kind import PolicyKind

_FOLDER = Path(__file__).parents[2] / "docs" / "policies"
_COMMENT = re.compile(r"^<!--.*-->\n", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\((?!\w+:)([^)#]+)[^)]*\)")


def page(policy: str) -> str:
    """Return the page on a policy as Markdown, without its title; links to other pages become their paths."""
    return _pages()[policy]


@cache
def _pages() -> dict[str, str]:
    """Return the pages by the policies that their titles name."""
    found: dict[str, str] = {}
    for path in sorted(_FOLDER.glob("*.md")):
        title, _, text = path.read_text(encoding="utf-8").partition("\n")
        text = _LINK.sub(lambda link: posixpath.normpath(f"docs/policies/{link[1]}"), _COMMENT.sub("", text))
        found |= dict.fromkeys(title.removeprefix("# ").split(", "), text.strip() + "\n")
    return found


def to_json(kind: PolicyKind, *, documentation: bool) -> dict[str, Any]:
    """Return what is known about a policy, with its page where `documentation` asks for it."""
    return {
        "name": kind.name,
        "summary": kind.summary,
        "source": kind.source,
        "date": kind.date,
        "evidence": kind.main_evidence,
        "evidence_of": dict(kind.evidence),
        "options": {name: list(option.values) for name, option in kind.options.items()},
        "defaults": {name: option.default for name, option in kind.options.items()},
        "cache": kind.cache,
        "drift": kind.drift,
        **({"documentation": page(kind.name)} if documentation else {}),
    }
