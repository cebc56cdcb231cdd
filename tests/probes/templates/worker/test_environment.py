"""The environment: no more than transformers' functions, and errors that say where."""

from __future__ import annotations

import pytest
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.template import ChatTemplate

USER = [{"role": "user", "content": "x"}]


def rendered(text: str) -> str:
    return ChatTemplate({"default": text}, source="").render(USER)


def test_the_functions_of_transformers() -> None:
    assert rendered("{{ {'a': '<&>é'}|tojson }}") == '{"a": "<&>é"}'
    assert rendered("{{ {'b': 1, 'a': 'é'}|tojson(ensure_ascii=true, sort_keys=true) }}") == (
        '{"a": "\\u00e9", "b": 1}'
    )
    assert (
        rendered("{{ [1, 2]|tojson(indent=1) }}{{ [1, 2]|tojson(separators=(',', ':')) }}")
        == "[\n 1,\n 2\n][1,2]"
    )
    assert rendered("{{ dict(a=1) }}{{ dict.fromkeys('ab', 0) }}") == "{'a': 1}{'a': 0, 'b': 0}"
    assert rendered("{% set n = namespace({'a': 1}, b=2) %}{% set n.c = 3 %}{{ n.a + n.b + n.c }}") == "6"
    assert rendered("{% set n = namespace(self=1) %}{{ n.self }}") == "1"
    assert rendered("{% generation %}a{{ messages[0].content }}{% endgeneration %}b") == "axb"
    assert (
        rendered("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}")
        == "13"
    )
    assert rendered("a\n  {% if true %}\nb\n  {% endif %}\n") == "a\nb\n"


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("a\n{{ raise_exception('no ' ~ messages[0].role) }}", "TemplateError", 2),
        ("a\n\n{{ undefined.attribute }}", "UndefinedError", 3),
        ("{{ 1 + 'a' }}", "TypeError", 1),
        ("\n{{ ( }}", "TemplateSyntaxError", 2),
        ("\n{{ 'a'|no_such_filter }}", "TemplateAssertionError", 2),
        ("{% macro m() %}\n{{ 1 // 0 }}{% endmacro %}\n{{ m() }}", "ZeroDivisionError", 2),
        ("\n{{ dict.__class__.x }}", "SecurityError", 2),
        ("\n{{ namespace(_a=1) }}", "SecurityError", 2),
        ("{% set n = namespace() %}\n{% set n._a = 1 %}", "SecurityError", 2),
        ("\n{{ dict.update }}{{ dict.keys() }}", "UndefinedError", 2),
    ],
)
def test_errors_name_their_kind_and_line(text: str, kind: str, line: int) -> None:
    with pytest.raises(RenderError) as error:
        rendered(text)
    assert (error.value.kind, error.value.line) == (kind, line)
