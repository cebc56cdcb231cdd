"""Small templates that write reasoning where a condition holds."""

from typing import Any

from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.thinking.thinking import ThinkingReport, examine_thinking

LAST_USER = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
)


def template(
    condition: str, value: str = "m.reasoning_content", head: str = "", **options: Any
) -> ChatTemplate:
    """A template that writes reasoning where a condition holds."""
    text = (
        f"{head}{LAST_USER}{{% for m in messages %}}<{{{{ m.role }}}}>"
        f"{{% if m.role == 'assistant' and {value} and ({condition}) %}}[{{{{ {value} }}}}]{{% endif %}}"
        "{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name ~ (c.function.arguments | tojson) }}{% endfor %}"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return ChatTemplate({"default": text}, source="test.jinja", **options)


def examine(condition: str, value: str = "m.reasoning_content", head: str = "") -> ThinkingReport:
    return examine_thinking(template(condition, value, head))
