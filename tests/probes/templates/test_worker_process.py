"""Templates that try to run for ever, to eat memory, or to leave the sandbox."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError, RenderLimit
from tplaudit.probes.templates import wire
from tplaudit.probes.templates.renderer import renderer
from tplaudit.probes.templates.rendering import Limits, RenderTask
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.templates.worker_process import WorkerDied, WorkerProcess, resident_bytes

HOSTILE = Path(__file__).parents[2] / "data" / "hostile"
LIMITS = Limits(seconds=0.3, characters=5_000_000, bytes=400_000_000)
#: What this process may grow by: a prompt of the longest kind, on its way in and as a text.
MOST_GROWTH = 150_000_000

TEXT = "lorem ipsum dolor " * 3_000
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": TEXT}]
LOOP = "{% for i in range(99999) %}"
#: `a` is a text of 54,000 characters, `n` a namespace.
BEGIN = "{% set a = messages[0].content %}{% set n = namespace(x=a, y=a, l=[a], d={'k': a}) %}"


def straight(step: str, times: int = 60) -> str:
    """Repeat an assignment without any loop."""
    return "".join(step.replace("@", f"v{i}").replace("#", f"v{i + 1}") for i in range(times))


FOR_EVER = {
    "nested loops": LOOP * 4 + "{% endfor %}" * 4,
    "nested loops over characters": "{% for x in a %}{% for y in a %}{% for z in a %}" + "{% endfor %}" * 3,
    "nested loops that write": LOOP * 3 + "{% if false %}x{% endif %}" + "{% endfor %}" * 3,
    "loops with filters": LOOP * 3 + "{% set x = i|string|upper|length %}" + "{% endfor %}" * 3,
    "loop with a test": LOOP + LOOP + LOOP.replace(" %}", " if i == 7 %}") + "{% endfor %}" * 3,
    "loop inside a macro": "{% macro m() %}" + LOOP * 3 + "{% endfor %}" * 3 + "{% endmacro %}{{ m() }}",
    "loop inside a set block": "{% set x %}" + LOOP * 3 + "{% endfor %}" * 3 + "{% endset %}",
    "loop inside a filter block": "{% filter upper %}" + LOOP * 3 + "{% endfor %}" * 3 + "{% endfilter %}",
    "macros that call two each": "".join(
        f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}" for i in range(1, 60)
    )
    + "{% macro m0() %}{% endmacro %}{{ m59() }}",
    "recursion that branches": (
        "{% macro m(k) %}{% if k %}{{ m(k - 1) }}{{ m(k - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
    ),
    "recursive loop": (
        "{% for x in [60] recursive %}{% if x %}{{ loop([x - 1]) }}{{ loop([x - 1]) }}{% endif %}{% endfor %}"
    ),
    "map over map": "{{ range(99999)|map('string')|map('upper')|list|length }}".join([LOOP, "{% endfor %}"]),
    "sums": LOOP + "{{ range(99999)|sum }}{% endfor %}",
    "joins": LOOP + "{% set x = range(9999)|join %}{% endfor %}",
    "quadratic in the messages": (
        "{% for x in a %}{% for m in messages %}{% for y in a %}{% set z = messages|tojson %}"
        + "{% endfor %}" * 3
    ),
    "power": "{{ 9 ** 9 ** 9 ** 9 }}{{ 9 ** (9 ** 9) }}",
    "power in a test": "{% if 9 ** (9 ** 9) == 3 %}{% endif %}",
    "power by filters": "{{ 9 ** ('9' * 9)|int }}",
    "products": "{% set n.p = 3 ** 9999 %}" + LOOP + "{% set n.p = n.p * n.p %}{% endfor %}",
    "division": "{% set x = ('f' * 3999999)|int(base=16) %}{% set y = ('e' * 1999999)|int(base=16) %}"
    "{{ x // y }}",
    "remainder": "{% set x = ('f' * 3999999)|int(base=16) %}{% set y = ('e' * 1999999)|int(base=16) %}"
    "{{ x % y }}",
    "divisible": "{% set x = ('f' * 3999999)|int(base=16) %}{% set y = ('e' * 1999999)|int(base=16) %}"
    "{{ x is divisibleby(y) }}",
    "divisible by select": "{% set x = ('f' * 3999999)|int(base=16) %}"
    "{% set y = ('e' * 1999999)|int(base=16) %}{{ [x]|select('divisible' ~ 'by', y)|list|length }}",
    "rounding": "{{ 5|round(-1000000000) }}",
    "rounding down": "{{ 5|round(100000000, 'floor') }}",
    "strip": "{% set x = 'a' * 3999999 %}{% set y = 'b' * 3999999 ~ 'a' %}{{ x.strip(y) }}",
    "trim": "{% set x = 'a' * 3999999 %}{% set y = 'b' * 3999999 ~ 'a' %}{{ x|trim(y) }}",
    "reverse search": "{% set x = 'a' * 3999999 %}{% set y = 'ab' ~ 'a' * 1999999 %}{{ x.rfind(y) }}",
    "reverse split": "{% set x = 'a' * 3999999 %}{% set y = 'ab' ~ 'a' * 1999999 %}{{ x.rsplit(y) }}",
    "equal hashes": "{% set n.l = [] %}{% for i in range(170) %}{% set n.m = [] %}{% for j in range(170) %}"
    "{% set n.m = n.m + [[(i * 170 + j) * 2305843009213693951, 1]] %}{% endfor %}"
    "{% set n.l = n.l + n.m %}{% endfor %}{{ dict(n.l)|length }}",
    "comparison of a graph": "{% set v0 = [a] %}{% set w0 = [a ~ ''] %}"
    + straight("{% set # = [@, @] %}")
    + straight("{% set # = [@, @] %}").replace("v", "w")
    + "{{ v60 == w60 }}",
    "comparison of repeated lists": "{% set x = [a ~ ''] * 9999 %}{% set y = [a ~ ''] * 9999 %}"
    "{% set x = [x] * 9999 %}{% set y = [y] * 9999 %}{{ x == y }}",
    "comparison through attributes": "{% set n.x = [1, 'q' ~ a[0]] * 999 %}"
    "{% set k = namespace(x=[1, 'q' ~ a[0]] * 999) %}"
    + "{% set n.x = ([n] * 999)|map(attribute='x')|list %}{% set k.x = ([k] * 999)|map(attribute='x')|list %}"
    * 5
    + "{{ n.x == k.x }}",
    "comparison through arguments": "{% macro m() %}{% set n.x = varargs %}{% endmacro %}"
    "{% macro k() %}{% set n.y = varargs %}{% endmacro %}"
    "{% set n.x = (1, 'q' ~ a[0]) %}{% set n.y = (1, 'q' ~ a[0]) %}"
    + "{{ m(n.x, n.x) }}{{ k(n.y, n.y) }}" * 60
    + "{{ n.x == n.y }}",
    "comparison of keys": "{% set n.x = [1, 'q' ~ a[0]] %}{% set n.y = [1, 'q' ~ a[0]] %}"
    + "{% set n.x = dict.fromkeys(range(99)|list, n.x) %}{% set n.y = dict.fromkeys(range(99)|list, n.y) %}"
    * 9
    + "{{ n.x == n.y }}",
    "hash of a graph": "{% set v0 = (1, 'q' ~ a[0]) %}"
    + straight("{% set # = (@, @) %}")
    + "{{ {v60: 1}|length }}",
    "membership in a graph": "{% set v0 = (1, 'q' ~ a[0]) %}"
    + straight("{% set # = (@, @) %}")
    + "{{ v60 in {} }}",
    "sorted graphs": "{% set v0 = [1, 'q' ~ a[0]] %}{% set w0 = [1, 'q' ~ a[0]] %}"
    + straight("{% set # = [@, @] %}")
    + straight("{% set # = [@, @] %}").replace("v", "w")
    + "{{ [v60, w60]|sort|length }}",
    "comparisons without a call": "{% set x = ['q' ~ a[0]] * 99999 %}{% set y = ['q' ~ a[0]] * 99999 %}"
    + "{% if x == y and x < y %}{% endif %}" * 3_000,
    "membership without a call": "{% set x = ('q' ~ a[0],) * 99999 %}"
    + "{% if 'p' in x and 'r' not in x %}{% endif %}" * 2_500,
    "generators in generators": LOOP
    + "{% for j in range(99999) %}{% set n.l = n.l|map('string') %}{% endfor %}{% endfor %}",
    "comparison in a chain": "{% set x = ['q' ~ a[0]] * 99999 %}{% set y = ['q' ~ a[0]] * 99999 %}{{ x"
    + " == y == x" * 2_000
    + " }}",
    "keys without a call": "{% set x = ('q' ~ a[0],) * 99999 %}{{ {"
    + ", ".join(["x: 1"] * 4_000)
    + "}|length }}",
    "arithmetic without a call": "{% set x = ('f' * 3999999)|int(base=16) %}{% set y = "
    + " - ".join(["x"] * 300)
    + " %}"
    + "{% set y = -x / x - y %}" * 3_000,
    "slices without a call": "{% set x = a * 70 %}" + "{% set y = x[1:] %}" * 4_000,
    "lipsum": "{{ lipsum(n=99999999) }}",
    "lipsum under another name": "{% set dict = lipsum %}{{ dict(n=99999999) }}",
}

GROWING = {
    "product": "{{ 'x' * 9999999999 }}",
    "product of a list": "{{ ([a] * 999999999)|length }}",
    "repeated products": "{% set x = 'x' %}" + "{% set x = x * 99999 %}" * 9 + "{{ x|length }}",
    "center": "{{ 'x'.center(9999999999) }}",
    "center by filter": "{{ 'x'|center(9999999999) }}",
    "ljust": "{{ 'x'.ljust(9999999999) }}",
    "zfill": "{{ 'x'.zfill(9999999999) }}",
    "expandtabs": "{{ '\\t'.expandtabs(999999999) }}",
    "indent": "{{ a|indent(999999999) }}",
    "indent of JSON": "{{ [[1], [a]]|tojson(indent=999999999) }}",
    "separators of JSON": "{{ ([1] * 99999)|tojson(separators=(a, a)) }}",
    "batch": "{{ [1]|batch(999999999, a)|list|length }}",
    "slice": "{{ [1]|slice(999999999, a)|list|length }}",
    "wordwrap": "{{ a|wordwrap(1, wrapstring=a * 99) }}",
    "urlize": "{{ ('www.x.com ' * 99999)|urlize(target=a) }}",
    "format by operator": "{{ '%999999999d' % 3 }}",
    "format by operator with a name": "{{ '%(k)999999999d' % {'k': 3} }}",
    "format by operator with a star": "{{ '%*d' % (999999999, 3) }}",
    "format by filter": "{{ '%999999999d'|format(3) }}",
    "format by method": "{{ '{:999999999}'.format(3) }}",
    "format by another method": "{{ '{k:999999999}'.format_map({'k': 3}) }}",
    "method under another name": "{% set dict = 'x'.center %}{{ dict(9999999999) }}",
    "method under the name of a macro": "{% macro m() %}{% endmacro %}{% set m = 'x'.center %}"
    "{{ m(9999999999) }}",
    "method as an argument": "{% macro m(range) %}{{ range(9999999999) }}{% endmacro %}{{ m('x'.center) }}",
    "method by subscript": "{% set f = 'x'['cen' ~ 'ter'] %}{% set range = f %}{{ range(9999999999) }}",
    "filter by map": "{{ ['x']|map('cen' ~ 'ter', 9999999999)|list|length }}",
    "attribute by filter": "{% set range = 'x'|attr('center') %}{{ range(9999999999) }}",
    "bytes": "{% set range = (3).to_bytes %}{{ range(9999999999, 'big') }}",
    "strftime": "{{ strftime_now('%c' * 1999999) }}",
    "doubling by concatenation": LOOP + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling by addition": LOOP + "{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling by join": LOOP + "{% set n.x = [n.x, n.x]|join %}{% endfor %}",
    "doubling by separator": LOOP + "{% set n.x = [1, 2, 3]|join(n.x) %}{% endfor %}",
    "doubling by the method join": LOOP + "{% set n.x = n.x.join(['', '', '']) %}{% endfor %}",
    "doubling by replace": LOOP + "{% set n.x = n.x|replace('l', 'lll') %}{% endfor %}",
    "doubling by the method replace": LOOP + "{% set n.x = n.x.replace('', 'll') %}{% endfor %}",
    "doubling by escape": LOOP + "{% set n.x = (n.x ~ '&&&&&&&&')|e|string %}{% endfor %}",
    "doubling by tojson": LOOP + "{% set n.x = n.x|tojson|tojson %}{% endfor %}",
    "doubling by string": LOOP + "{% set n.x = [n.x, n.x]|string %}{% endfor %}",
    "doubling by upper": LOOP + "{% set n.x = [n.x, n.x]|upper %}{% endfor %}",
    "doubling by set block": LOOP + "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "doubling by filter block": LOOP
    + "{% set n.x %}{% filter replace('l', 'lll') %}{{ n.x }}{% endfilter %}{% endset %}{% endfor %}",
    "doubling by a macro": "{% macro m(s) %}{{ s }}{{ s }}{% endmacro %}"
    + LOOP
    + "{% set n.x = m(n.x) %}{% endfor %}",
    "doubling by a caller": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + LOOP
    + "{% set n.x %}{% call m() %}{{ n.x }}{% endcall %}{% endset %}{% endfor %}",
    "doubling of lists": LOOP + "{% set n.l = n.l + n.l %}{% endfor %}",
    "doubling of lists in lists": LOOP + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l|tojson }}",
    "doubling of dicts": LOOP + "{% set n.d = {'a': n.d, 'b': n.d} %}{% endfor %}{{ n.d }}",
    "doubling of dict calls": LOOP + "{% set n.d = dict(a=n.d, b=n.d) %}{% endfor %}{{ n.d }}",
    "doubling of tuples": LOOP + "{% set n.l = (n.l, n.l) %}{% endfor %}{{ n.l }}",
    "doubling under another name": "{% set k = n %}" + LOOP + "{% set n.x = k.x ~ k.x %}{% endfor %}",
    "doubling without a loop": "{% set v0 = a %}" + straight("{% set # = @ ~ @ %}") + "{{ v60|length }}",
    "doubling of lists without a loop": "{% set v0 = [a] %}" + straight("{% set # = [@, @] %}") + "{{ v60 }}",
    "doubling of output": "{% set v0 = ['q' ~ a[0], 2] %}" + straight("{% set # = [@, @] %}") + "{{ v60 }}",
    "doubling of JSON": "{% set v0 = ['q' ~ a[0], 2] %}"
    + straight("{% set # = [@, @] %}")
    + "{{ v60|tojson }}",
    "doubling of keywords": "{% macro m() %}{% set n.d = kwargs %}{% endmacro %}"
    + "{{ m(a=n.d, b=n.d) }}" * 60
    + "{{ n.d }}",
    "late graph of namespaces": "{% set k0 = namespace() %}"
    + "".join(f"{{% set k{i} = namespace() %}}" for i in range(1, 60))
    + "".join(f"{{% set k{i}.a = [k{i - 1}, k{i - 1}] %}}" for i in range(59, 0, -1))
    + "{% set k0.a = a %}{{ k59 }}",
    "Fibonacci": LOOP + "{% set n.x = n.x ~ n.y %}{% set n.y = n.y ~ n.x %}{% endfor %}",
    "cubic growth": LOOP
    + "{% set n.x = n.x ~ n.y %}{% set n.y = n.y ~ n.z %}{% set n.z = n.z ~ a %}{% endfor %}",
    "collected texts": LOOP + "{% set n.l = n.l + [a ~ i] %}{% endfor %}",
    "collected slices": LOOP + "{% set n.l = n.l + [a[i:]] %}{% endfor %}",
    "collected copies": LOOP + "{% set n.l = n.l + [a|upper] %}{% endfor %}",
    "collected ranges": LOOP + "{% set n.l = n.l + [range(99999)|list] %}{% endfor %}",
    "one wide concatenation": "{% set b = a * 50 %}{% set c = " + "~".join(["b"] * 3_000) + " %}",
    "one wide list": "{% set b = a * 50 %}{% set c = [" + ",".join(["b[1:]"] * 3_000) + "] %}",
    "characters": "{% set b = 'ü漢' * 1999999 %}" + LOOP + "{% set n.l = n.l + [b|list] %}{% endfor %}",
    "pieces": "{% set b = 'a ' * 1999999 %}" + LOOP + "{% set n.l = n.l + [b.split(' ')] %}{% endfor %}",
    "output": LOOP + "{{ a }}{% endfor %}",
    "output of a generation block": "{% generation %}" + LOOP + "{{ a }}{% endfor %}{% endgeneration %}",
    "an error of any length": "{% set n.x = 'x' * 3999999 %}{{ raise_exception(n.x * 100) }}",
    "folded constants": "{{ '"
    + "x" * 2_000
    + "'"
    + ("|replace('x', '" + "x" * 2_000 + "')") * 4
    + "|length }}",
}

#: What Jinja computes while it compiles, and a source that is long to parse.
FOLDED = {
    "indent of JSON": "{{ [[[[1]]]]|tojson(indent=99999999) }}",
    "product": "{{ 'x' * 9999999999 }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "power in a condition": "{% if 9 ** (9 ** 9) %}{% endif %}",
    "product in a default": "{% macro m(x='x' * 9999999999) %}{% endmacro %}{{ m() }}",
    "product of lists": "{% set x = [1] * 9999999999 %}",
    "concatenated products": "{{ ('x' * 99999999) ~ ('y' * 99999999) ~ ('x' * 199999999) }}",
    "center": "{{ 'x'|center(9999999999) }}",
    "format": "{{ '%999999999d'|format(3) }}",
    "format by operator": "{{ '%9999999999d' % 3 }}",
    "rounding": "{{ 5|round(-1000000000) }}",
    "quotient of powers": "{{ 2 ** 99999999 // 3 ** 9999999 }}",
    "long source": "{{ a.b.c[0] }}{% if a %}x{% endif %}" * 40_000,
}

#: They fail, or see nothing; none needs to be stopped.
ESCAPES = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "class by subscript": "{{ ''['__class__'] }}{{ ''['__class__']['__mro__'] }}",
    "class by filter": "{{ (''|attr('__class__')).__mro__ }}",
    "class by map": "{{ (['']|map(attribute='__class__')|first).__mro__ }}",
    "globals of a function": "{{ raise_exception.__globals__['x'] }}",
    "globals of a method": "{{ namespace.__init__.__globals__['x'] }}",
    "globals of cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "globals of joiner": "{{ joiner.__init__.__globals__.os }}",
    "globals of lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "init of a namespace": "{% set x = namespace(__init__=1) %}",
    "class of a namespace": "{% set x = namespace() %}{% set x.__class__ = 1 %}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format_map": "{{ '{x.__class__.__mro__}'.format_map({'x': ''}) }}",
    "format by reference": "{% set f = '{0.__class__.__mro__}'.format %}{{ f('') }}",
    "mutation": "{{ messages.append(1) }}",
    "mutation of a message": "{{ messages[0].update({'role': 'x'}) }}",
    "template reference": "{{ self.__init__.__globals__.x }}",
    "macro": "{% macro m() %}{% endmacro %}{{ m.__call__.__globals__.x }}",
    "generator": "{{ (messages|map('upper')).gi_frame.f_globals.x }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends '/etc/passwd' %}",
    "environment of the extension": "{{ environment.loader.x }}",
    "nesting of parentheses": "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "nesting of lists": "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "nesting of conditions": "{% if a %}" * 2_000 + "{% endif %}" * 2_000,
    "nesting of loops": "{% for a in messages %}" * 60 + "{% endfor %}" * 60,
    "endless sum": "{{ a" + "+a" * 5_000 + " }}",
    "endless chain": "{{ a" + "|upper" * 5_000 + " }}",
    "endless attribute": "{{ a" + ".x" * 5_000 + " }}",
    "huge number": "{{ " + "9" * 100_000 + " }}",
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "unclosed": "{% raw %}" + "{{" * 100_000,
}


def peak() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def worker_peak() -> int:
    """Return the most memory, in bytes, that the worker has had; 0 where that cannot be read."""
    try:
        status = Path(f"/proc/{renderer.pid}/status").read_text()
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def attack(text: str, limits: Limits = LIMITS) -> tuple[ChatTemplate, str | RenderError]:
    """Render a hostile template, and hold both processes to its bounds."""
    template = ChatTemplate({"default": text}, source="hostile", limits=limits)
    outcome: str | RenderError
    memory = peak()
    try:
        outcome = template.render(MESSAGES)
    except RenderError as error:
        outcome = error
    assert peak() - memory < MOST_GROWTH
    assert worker_peak() < limits.bytes
    if isinstance(outcome, str):
        assert len(outcome) <= limits.characters
    return template, outcome


@pytest.mark.parametrize("name", FOR_EVER)
def test_a_template_that_runs_for_ever_is_stopped(name: str) -> None:
    template, outcome = attack(BEGIN + FOR_EVER[name])
    if isinstance(outcome, RenderError) and "set_int_max_str_digits" in outcome.message:
        return  # Python itself refuses to write such an integer into the code
    assert isinstance(outcome, RenderLimit), outcome
    worker = renderer.pid
    with pytest.raises(RenderLimit) as stopped:
        template.render(MESSAGES)
    assert stopped.value is outcome
    assert renderer.pid == worker, "it was tried again"


@pytest.mark.parametrize("name", GROWING)
def test_a_template_that_eats_memory_is_stopped(name: str) -> None:
    _, outcome = attack(BEGIN + GROWING[name])
    # A fast machine gets to the depth of the value that was built before it gets to its size.
    assert isinstance(outcome, RenderLimit) or outcome.kind == "RecursionError", outcome


@pytest.mark.parametrize("name", FOLDED)
def test_compiling_a_template_is_bounded(name: str) -> None:
    """Also where nothing is rendered: the source is only asked about."""
    template, outcome = attack(FOLDED[name])
    assert isinstance(outcome, RenderError), outcome
    assert isinstance(outcome, RenderLimit) or outcome.kind in ("OverflowError", "ValueError"), outcome
    with contextlib.suppress(RenderError):
        template.choose(None).check()
    with contextlib.suppress(RenderError):
        template.choose(None).names  # noqa: B018 - asks the worker
    assert worker_peak() < LIMITS.bytes


@pytest.mark.parametrize("path", sorted(HOSTILE.glob("*.jinja")), ids=lambda path: path.stem)
def test_hostile_files(path: Path) -> None:
    _, outcome = attack(path.read_text())
    if path.stem == "bomb1":
        assert isinstance(outcome, RenderLimit)  # 0.3 s of a fast machine are enough for 0.4 GB
    elif path.stem.startswith("rl"):
        assert isinstance(outcome, str) or str(outcome).startswith("not evaluated, too slow")
    else:
        assert isinstance(outcome, str)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_template_cannot_leave_the_sandbox(name: str) -> None:
    _, outcome = attack(ESCAPES[name], Limits(seconds=5.0))
    if isinstance(outcome, RenderError):
        assert outcome.kind in {
            "SecurityError",
            "UndefinedError",
            "TypeError",
            "RecursionError",
            "SyntaxError",
            "TemplateSyntaxError",
            "ValueError",
        }, outcome
    else:
        assert outcome == ""


@pytest.mark.parametrize(
    "text",
    [
        "{% for m in messages %}{% set x = messages|tojson %}{% endfor %}",
        "{% for m in messages %}{% for k in messages %}{% set x = messages|map(attribute='content')|join %}"
        "{% endfor %}{% endfor %}",
        "{% set n = namespace(s='') %}{% for m in messages %}{% for k in messages %}"
        "{% set n.s = n.s ~ k.content %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s=[]) %}{% for m in messages %}{% for k in messages %}"
        "{% set n.s = n.s + [messages] %}{% endfor %}{% endfor %}{{ n.s == n.s[:] }}",
        "{% for m in messages %}{% for k in messages %}{% for l in messages %}{{ l.content }}"
        "{% endfor %}{% endfor %}{% endfor %}",
    ],
)
def test_many_messages(text: str) -> None:
    messages = [{"role": "user", "content": f"{number} " + "x" * 1_000} for number in range(700)]
    template = ChatTemplate({"default": text}, source="hostile", limits=LIMITS)
    memory = peak()
    with contextlib.suppress(RenderLimit):
        assert len(template.render(messages)) < LIMITS.characters
    assert peak() - memory < MOST_GROWTH
    assert worker_peak() < LIMITS.bytes


SLOW = LOOP * 3 + "{% endfor %}" * 3


def request(text: str) -> Request:
    return Request((Message({"role": "user", "content": text}, 0),))


def test_another_template_is_rendered_after_the_worker_was_ended() -> None:
    slow = ChatTemplate({"default": SLOW}, source="slow", limits=LIMITS)
    with pytest.raises(RenderLimit, match=r"too slow: it did not finish within 0\.3 s of CPU time"):
        slow.render(MESSAGES)
    other = ChatTemplate({"default": "{{ messages[0].content[:5] }}"}, source="other")
    assert other.render(MESSAGES) == TEXT[:5]
    hungry = ChatTemplate({"default": "{{ 'x'.center(9999999999) }}"}, source="hungry", limits=LIMITS)
    with pytest.raises(RenderLimit, match=r"too much memory: it used more than 0\.4 GB"):
        hungry.render(MESSAGES)
    assert other.render(MESSAGES) == TEXT[:5]


@pytest.mark.parametrize(
    ("bad", "why"),
    [(SLOW, "too slow"), ("{{ 'x'.center(9999999999) }}", "too much memory"), ("{{ a" * 9, "")],
)
def test_the_others_of_a_message_go_on(bad: str, why: str) -> None:
    text = "{% if messages[0].content == 'bad' %}" + (bad if why else "{{ 1 // 0 }}") + "{% endif %}"
    template = ChatTemplate({"default": text + "{{ messages[0].content }}"}, source="", limits=LIMITS)
    contents = [*map(str, range(50)), "bad", *map(str, range(50, 100))]
    outcomes = template.render_many([RenderTask(request(each)) for each in contents])
    error = outcomes.pop(50)
    assert isinstance(error, RenderError) and (
        why in str(error) if why else error.kind == "ZeroDivisionError"
    )
    assert [each.text for each in outcomes if not isinstance(each, RenderError)] == list(map(str, range(100)))


def test_a_worker_that_something_else_ends_is_replaced() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}"}, source="")
    assert template.render_request(request("one")) == "one"
    assert renderer.pid is not None
    os.kill(renderer.pid, signal.SIGKILL)
    assert template.render_request(request("two")) == "two"


def test_one_of_several_templates_is_stopped() -> None:
    template = ChatTemplate({"default": "fine", "tool_use": SLOW}, source="", limits=LIMITS)
    with pytest.raises(RenderLimit):
        template.render(MESSAGES, tools=[])
    assert template.render(MESSAGES) == "fine"


def test_a_chunk_of_a_hostile_template() -> None:
    template = ChatTemplate({"default": SLOW + "x"}, source="", limits=LIMITS)
    for _ in range(7):
        with pytest.raises(RenderLimit):
            template.chunk_at(Request((Message(MESSAGES[0], 0),)), 0)
    worker = renderer.pid
    with pytest.raises(RenderLimit):
        template.chunk_at(Request((Message(MESSAGES[0], 0),)), 0)
    assert renderer.pid == worker, "it was tried again"


def test_an_interrupt_leaves_everything_usable() -> None:
    """It comes when the worker is busy, however long that takes."""
    slow = ChatTemplate({"default": SLOW}, source="slow", limits=Limits(seconds=60.0))
    other = ChatTemplate({"default": "fine"}, source="other")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    renderer.start()
    worker = renderer.pid
    assert worker is not None

    def interrupt() -> None:
        while cpu_ticks(worker) < busy:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    assert other.render(MESSAGES) == "fine"
    busy = cpu_ticks(worker) + 20
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        slow.render(MESSAGES)
    thread.join()
    signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert other.render(MESSAGES) == "fine"


def cpu_ticks(pid: int) -> int:
    """Return the CPU time of a process, in ticks of the system's clock."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_timers_of_others_are_left_alone() -> None:
    rung: list[int] = []
    handler = signal.signal(signal.SIGPROF, lambda number, frame: rung.append(number))
    try:
        assert ChatTemplate({"default": "x"}, source="").render(MESSAGES) == "x"
        with pytest.raises(RenderLimit, match="too slow"):
            ChatTemplate({"default": SLOW}, source="", limits=LIMITS).render(MESSAGES)
        os.kill(os.getpid(), signal.SIGPROF)
        assert rung == [signal.SIGPROF]
    finally:
        signal.signal(signal.SIGPROF, handler)


def test_threads_take_turns() -> None:
    outcomes: list[Any] = []

    def work(text: str) -> None:
        try:
            outcomes.append(ChatTemplate({"default": text}, source="", limits=LIMITS).render(MESSAGES))
        except RenderError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work, args=(text,)) for text in ("one", "two", SLOW)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome for outcome in outcomes if isinstance(outcome, str)) == ["one", "two"]
    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, str)] == [RenderLimit]


def test_the_worker_ends_with_its_parent() -> None:
    """Even in the middle of a render, which its limit then ends."""
    code = (
        "from tplaudit.probes.templates.renderer import renderer\n"
        "from tplaudit.probes.templates.rendering import Limits\n"
        "from tplaudit.probes.templates.template import ChatTemplate\n"
        f"template = ChatTemplate({{'default': {SLOW!r}}}, source='', limits=Limits(seconds=1.0))\n"
        "renderer.start()\n"
        "print(renderer.pid, flush=True)\n"
        "template.render([{'role': 'user', 'content': ''}])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        while cpu_ticks(worker) < 10:
            time.sleep(0.01)
        parent.kill()
    while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes():
        time.sleep(0.05)


HUNGRY = "{% set n = namespace(x=[]) %}" + LOOP + "{% set n.x = n.x + ['y' * 999999 ~ i] %}{% endfor %}"


def test_memory_is_watched_where_the_system_does_not_limit_it() -> None:
    worker = WorkerProcess("tplaudit.probes.templates.worker", watched=True)
    message = wire.dumps(
        (
            (60.0, 10**9, 10**12),
            (1e9, 1 << 62),
            False,
            [(1, wire.dumps({}))],
            [(1, HUNGRY)],
            [],
            [("prompt", 1, ((), None, 1, True, None, None, False), False, None)],
        )
    )
    with pytest.raises(WorkerDied, match=r"too much memory: it used more than 0\.2 GB"):
        list(worker.exchange(message, 1, 60.0, 200_000_000))
    worker.close()
    assert resident_bytes(os.getpid()) > 1_000_000


def test_a_long_output_is_stopped() -> None:
    template = ChatTemplate({"default": LOOP + "{{ messages }}{% endfor %}"}, source="", limits=LIMITS)
    with pytest.raises(RenderLimit, match="too long: the template wrote more than 5,000,000 characters"):
        template.render(MESSAGES)


def test_no_bound_changes_what_an_honest_template_writes() -> None:
    honest = {
        "{{ 'x' * 4500000 }}": "x" * 4_500_000,
        "{{ '%05d|%(a)s' }}": "%05d|%(a)s",
        "{{ '%05d' % 42 }}": "00042",
        "{{ 7 ** 5 }} {{ 2 ** 40000 > 1 }} {{ 2 ** 400000 > 1 }}": f"{7**5} True True",
        "{{ [1, 2]|batch(1)|list }}": "[[1], [2]]",
        "{{ (range(99999)|list * 30)|length }}": str(99_999 * 30),
        "{{ 'ab'.center(6) }}|": "  ab  |",
        "{{ dict.fromkeys(range(20000)|list)|length }}": "20000",
    }
    limits = Limits(characters=10_000_000)
    for text, expected in honest.items():
        assert ChatTemplate({"default": text}, source="", limits=limits).render(MESSAGES) == expected
