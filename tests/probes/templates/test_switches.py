from __future__ import annotations

from tplaudit.probes.templates.source import TemplateSource
from tplaudit.probes.templates.switches import switches


def test_switches_are_told_by_their_names() -> None:
    text = (
        "{{ enable_thinking }}{{ reasoning_effort }}{{ low_effort }}{{ custom }}{{ tools }}{{ skip_it }}"
        "{% if thinking_mode in ['on', 'off'] %}{% endif %}{% set think_here = 1 %}{{ think_here }}"
    )
    assert switches(TemplateSource(text)) == {
        "enable_thinking": (True, False),
        "low_effort": (True, False),
        "reasoning_effort": ("low", "medium", "high"),
        "skip_it": (True, False),
        "thinking_mode": (True, False, "on", "off"),
    }
    assert switches(TemplateSource("{{ add_generation_prompt }}{{ raise_exception('x') }}")) == {}
