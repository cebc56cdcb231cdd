from __future__ import annotations

import pytest
from tplaudit.probes.templates.source import TemplateSource


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            (
                "{% for m in messages %}\n{% if m.role == 'user' %}{{ m.content }}"
                "{% elif m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% for m in messages %}\n{% if m.role == 'user' %}{{ m.content }}"
                "\n{% elif m.role == 'system' and loop.first %}{{ m.content }}{% endif %}{% endfor %}"
            ),
            3,
        ),
        (
            (
                "{% for m in messages %}\n{% if m['role'] in ['system'] %}\n{# nothing #}{% else %}"
                "{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% for m in messages %}{% if m.role == 'system' %}{{ m.name }}{% else %}{{ m.content }}"
                "{% endif %}{% endfor %}"
            ),
            None,
        ),
        ("{% for m in messages\n if m.role != 'system' %}{{ m.content }}{% endfor %}", 2),
        (
            (
                "{% for m in messages %}{% set role = m.role %}\n{% if role == 'user' or 'tool' == role %}"
                "{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% set known = ['user'] %}{% for m in messages %}\n{% if not (m.role not in known) %}"
                "{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
                "\n{% if m.role == 'tool' %}{{ m.content }}{% endif %}{% endif %}{% endfor %}"
            ),
            2,
        ),
        ("{% for m in messages %}{% if m.role == 'user' %}{% set n = 1 %}{% endif %}{% endfor %}", None),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", None),
        (
            (
                "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}"
                "\n{% if m.role == 'tool' %}{{ m.content }}{% endif %}{% endfor %}"
            ),
            None,
        ),
        ("{% for m in messages %}{% if loop.first %}{{ m.content }}{% endif %}{% endfor %}", None),
        ("{% for a, b in messages %}{% if a.role == 'user' %}{{ a }}{% endif %}{% endfor %}", None),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_the_condition_that_keeps_a_role_out(text: str, line: int | None, compiled: bool) -> None:
    source = TemplateSource(text)
    if compiled:
        source.check()  # which folds constants in the tree
    assert source.skipped_branch_line("system") == line
