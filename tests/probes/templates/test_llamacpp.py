"""llama.cpp's own engine: the same request through both engines, and what happens without the extra."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tplaudit import fixtures
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import InputError, RenderError, RenderLimit
from tplaudit.probes.policies.base import Prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.llama_cpp_template import capabilities
from tplaudit.probes.templates import llamacpp as llamacpp_engine
from tplaudit.probes.templates.llamacpp import Excerpt, LlamaCppEngine, first_difference
from tplaudit.probes.templates.rendering import Limits
from tplaudit.probes.templates.template import ChatTemplate

CASES = sorted((Path(__file__).parents[2] / "cases").glob("*/case.json"))
FIXTURES = sorted((Path(fixtures.__file__).parent / "templates").glob("*.jinja"))
LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
needs_extra = pytest.mark.skipif(
    find_spec("ggufdoctor") is None, reason="the extra llamacpp (ggufdoctor) is not installed"
)


@pytest.fixture
def engine() -> LlamaCppEngine:
    return LlamaCppEngine()


@pytest.fixture
def unloaded() -> Iterator[None]:
    llamacpp_engine.load_engine.cache_clear()
    yield
    llamacpp_engine.load_engine.cache_clear()


def template(text: str, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test", special_tokens=special_tokens)


def prepared(*messages: dict[str, Any], **fields: Any) -> Prepared:
    given = messages or ({"role": "user", "content": "u"},)
    return Prepared(Request(tuple(Message(data, n) for n, data in enumerate(given)), **fields))


# Without the extra


def test_without_the_extra_the_error_says_how_to_get_it(
    unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(llamacpp_engine.metadata, "version", missing)
    with pytest.raises(InputError) as caught:
        LlamaCppEngine()
    assert str(caught.value) == (
        "llama.cpp's template engine is not installed; install it: pip install 'tplaudit[llamacpp]'"
    )


def test_another_release_is_refused(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp_engine.metadata, "version", lambda name: "0.4.1")
    monkeypatch.setattr(llamacpp_engine, "import_module", lambda name: SimpleNamespace())
    with pytest.raises(InputError, match=r"ggufdoctor 0\.4\.1 is installed, and its release 0\.3 is needed"):
        LlamaCppEngine()


def test_an_engine_that_does_not_work_says_why(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(available=False, unavailable_reason="wasmtime not importable: no such file")
    module = SimpleNamespace(LlamaCppEngine=lambda: broken)
    monkeypatch.setattr(llamacpp_engine.metadata, "version", lambda name: "0.3.0")
    monkeypatch.setattr(llamacpp_engine, "import_module", lambda name: module)
    with pytest.raises(InputError, match="does not work here: wasmtime not importable"):
        LlamaCppEngine()


def test_the_first_difference() -> None:
    assert first_difference("same", "same") is None
    at = first_difference("a" * 100 + "b" + "c" * 100, "a" * 100 + "d")
    assert at is not None
    assert at.offset == 100
    assert at.transformers == Excerpt("a" * 40 + "b" + "c" * 39, 40)
    assert at.llamacpp == Excerpt("a" * 40 + "d", 40)
    end = first_difference("ab", "abc")
    assert end is not None
    assert (end.offset, end.transformers, end.llamacpp) == (2, Excerpt("ab", 2), Excerpt("abc", 2))


# With it


@needs_extra
def test_the_template_sees_messages_tools_kwargs_and_tokens(engine: LlamaCppEngine) -> None:
    source = (
        "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ tools | tojson }}|{{ x.y[0] }}"
        "|{{ enable_thinking }}|{{ preserve_thinking }}|{{ add_generation_prompt }}|" + LOOP
    )
    tool = {"type": "function", "function": {"name": "f"}}
    given = prepared(tools=(tool,), kwargs={"x": {"y": (1,)}, "enable_thinking": False})
    text = engine.render(given, template(source, bos_token="<s>", pad_token="<p>", sep_token="<p>")).prompt
    tools = '[{"type": "function", "function": {"name": "f"}}]'
    assert text == f"<s>|||{tools}|1|False|True|True|<user>u"


@needs_extra
def test_without_tools_there_is_no_such_variable(engine: LlamaCppEngine) -> None:
    source = template("{{ tools is defined }}{{ documents is defined }}")
    assert engine.render(prepared(), source).prompt == "FalseFalse"
    assert engine.render(prepared(tools=()), source).prompt == "FalseFalse"


@needs_extra
def test_the_engine_rewrites_contents(engine: LlamaCppEngine) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    result = engine.render(prepared({"role": "user", "content": parts}), template(LOOP))
    assert result.prompt == "<user>a\nb"
    assert result.rewrote_contents
    assert result.capabilities["supports_system_role"]


@needs_extra
@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("{{ raise_exception('no ' + messages[0].role) }}", "TemplateError", "no user"),
        ("{{ messages", "TemplateSyntaxError", "parser"),
        ("{% raw %}x{% endraw %}", "TemplateSyntaxError", "raw"),
        ("{{ messages | no_such_filter }}", "RuntimeError", "no_such_filter"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RenderLimit", "fuel or its stack"),
        (
            "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
            "RenderLimit",
            "fuel",
        ),
        pytest.param("{{ 'x' * 300000000 }}", "RenderLimit", "memory", marks=pytest.mark.slow),
    ],
)
def test_whatever_goes_wrong_is_a_render_error(
    engine: LlamaCppEngine, source: str, kind: str, message: str
) -> None:
    with pytest.raises(RenderError) as caught:
        engine.render(prepared(), template(source))
    assert caught.value.kind == kind
    assert message in caught.value.message
    assert isinstance(caught.value, RenderLimit) == (kind == "RenderLimit")
    assert engine.render(prepared(), template(LOOP)).prompt == "<user>u", "the engine goes on working"


@needs_extra
@pytest.mark.parametrize(
    "given",
    [
        prepared({"role": "user", "content": "\ud800"}),
        prepared(kwargs={"x": float("nan")}),
        prepared(partial=True),
        Prepared(prepared().request, error=RenderError("type_error", "the server fails")),
    ],
    ids=["half a character", "not a number", "continued", "refused before"],
)
def test_requests_that_the_engine_cannot_get(engine: LlamaCppEngine, given: Prepared) -> None:
    with pytest.raises(RenderError):
        engine.render(given, template(LOOP))


@needs_extra
def test_named_templates(engine: LlamaCppEngine) -> None:
    both = ChatTemplate({"default": "plain", "tool_use": "tools"}, source="test")
    assert engine.render(prepared(), both).prompt == "plain"
    assert engine.render(prepared(tools=({"type": "function"},)), both).prompt == "tools"
    with pytest.raises(RenderError):
        engine.render(prepared(), ChatTemplate({"tool_use": "tools"}, source="test"))


@needs_extra
def test_a_difference_is_shown_where_it_begins(engine: LlamaCppEngine) -> None:
    tools_or_not = "{% if tools is none %}no tools{% else %}tools{% endif %}"
    compared = engine.compare(prepared(), template("Hello, " + tools_or_not))
    assert not compared.same
    assert (compared.transformers, compared.llamacpp) == ("Hello, no tools", "Hello, tools")
    assert compared.difference is not None
    assert compared.difference.offset == len("Hello, ")
    assert compared.difference.llamacpp == Excerpt("Hello, tools", 7)
    assert compared.engine == engine.build
    assert compared.engine.startswith("llama.cpp b")


@needs_extra
def test_one_of_both_may_raise(engine: LlamaCppEngine) -> None:
    source = "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(messages[0].content, b=1) }}"
    compared = engine.compare(prepared(), template(source))
    assert not compared.same
    assert compared.llamacpp == "u"
    assert compared.transformers is None
    assert "takes no keyword argument" in (compared.transformers_error or "")
    both = engine.compare(prepared(), template("{{ raise_exception('x') }}"))
    assert both.same
    assert both.transformers_error == both.llamacpp_error == "TemplateError: x"


@needs_extra
def test_both_engines_see_one_clock(engine: LlamaCppEngine) -> None:
    given = prepared(now=datetime(2025, 5, 5))
    compared = engine.compare(given, template("{{ strftime_now('%d %b %Y') }}"))
    assert compared.same
    assert compared.llamacpp == llamacpp_engine.CLOCK.strftime("%d %b %Y")


@needs_extra
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_the_case_folders_are_the_same_through_both(engine: LlamaCppEngine, path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    text = (path.parent / case["template_file"]).read_text(encoding="utf-8")
    given, policy = template(text, bos_token="<bos>", eos_token="<eos>"), parse_policy("llama-cpp")
    for request in case["requests"]:
        ready = policy.prepare(
            Request(
                tuple(Message(data, n) for n, data in enumerate(request["messages"])),
                tools=tuple(request["tools"]) if request.get("tools") else None,
                kwargs=request.get("chat_template_kwargs") or {},
            ),
            given,
        )
        compared = engine.compare(ready, given)
        if "takes no keyword argument" in (compared.transformers_error or ""):
            assert compared.llamacpp is not None, "llama.cpp's macros ignore what they do not know"
        else:
            assert compared.same, compared.difference


@needs_extra
@pytest.mark.parametrize("path", [*FIXTURES, *CASES], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_policy_sees_the_capabilities_that_the_engine_sees(engine: LlamaCppEngine, path: Path) -> None:
    path = path.parent / "template.jinja" if path.name == "case.json" else path
    given = template(path.read_text(encoding="utf-8"), bos_token="<bos>", eos_token="<eos>")
    mine, theirs = capabilities(given, "b10775"), engine.capabilities(given)
    assert mine.system_role == theirs["supports_system_role"]
    assert mine.text_content == theirs["supports_string_content"]
    assert mine.typed_content == theirs["supports_typed_content"]
    assert mine.object_arguments == theirs["supports_object_arguments"]


@needs_extra
def test_capabilities_of_a_broken_template(engine: LlamaCppEngine) -> None:
    with pytest.raises(RenderError, match="TemplateSyntaxError"):
        engine.capabilities(template("{% if"))


@needs_extra
def test_the_engine_runs_in_a_process_that_is_replaced(
    engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A render that its process dies of, before its fuel ends, takes none of the others with it."""
    slow = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}"
    monkeypatch.setattr(llamacpp_engine, "_LIMITS", Limits(seconds=0.5, bytes=2_000_000_000))
    wanted = [(text, {"messages": [], "x": text}) for text in ("one", slow, "two", "{{ x }}")]
    found = engine.render_texts(wanted)
    assert [each.prompt for each in found if not isinstance(each, RenderError)] == ["one", "two", "{{ x }}"]
    assert isinstance(found[1], RenderLimit) and found[1].message.startswith("too slow")
