"""`tplaudit rules`: what is looked for."""

from __future__ import annotations

from . import options
from .output import write_json, write_rich


def command(as_json: options.Json = False, output: options.Output = None) -> None:
    """List the rules: id, severity and what each looks for."""
    import dataclasses

    from .. import __version__
    from ..probes.findings import RULES
    from .formats.rules_text import draw

    if as_json:
        rules = [dataclasses.asdict(rule) for rule in RULES.values()]
        write_json({"schema": "tplaudit.rules/1", "tplaudit": __version__, "rules": rules}, output)
    else:
        write_rich(draw, output)
