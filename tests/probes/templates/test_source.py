from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.errors import RenderLimit
from tplaudit.probes.templates.rendering import Limits
from tplaudit.probes.templates.template import ChatTemplate

LIMITS = Limits(seconds=0.3, characters=5_000_000, bytes=400_000_000)

TEXT = "lorem ipsum dolor " * 3_000
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": TEXT}]


def test_the_parsing_of_a_template_is_bounded() -> None:
    template = ChatTemplate({"default": "{{ a }}" * 140_000}, source="", limits=LIMITS)
    with pytest.raises(RenderLimit):
        template.render(MESSAGES)
    with pytest.raises(RenderLimit):
        template.choose(None).check()
