"""The gate's reports as JSON: one document, or one for several templates with their results in it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ....probes.gate.report import GateReport, several_to_json, to_json


def json_text(reports: Sequence[GateReport]) -> str:
    """Return the JSON document."""
    document = to_json(reports[0]) if len(reports) == 1 else several_to_json(reports)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
