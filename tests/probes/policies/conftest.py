from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tplaudit.probes.conversation import Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.source import ContentLoops


class FakeTemplate:
    """A template object with one behaviour towards later system turns, which remembers what it was asked."""

    def __init__(
        self,
        behaviour: str = "in place",
        *,
        supports: bool | None = None,
        relocate: Callable[[list[dict[str, Any]]], Any] | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.text = f"{{# {behaviour} #}}"
        self.supports_mid_system_messages = supports
        self.relocate_mid_system_messages = relocate
        self.calls: list[dict[str, Any]] = []
        self.content_loops = ContentLoops(followed=False, named=False)

    def choose(self, tools: Any) -> "FakeTemplate":
        """The one template, which is its own source."""
        return self

    def render_bare(self, turns: Sequence[tuple[str, str]], tools: Any = None) -> str:
        messages = [{"role": role, "content": content} for role, content in turns]
        return self.render(messages, add_generation_prompt=False)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: Any = None,
    ) -> str:
        self.calls.append(
            {
                "messages": list(messages),
                "tools": tools,
                "kwargs": dict(kwargs or {}),
                "add_generation_prompt": add_generation_prompt,
                "continue_final_message": continue_final_message,
            }
        )
        roles = [message["role"] for message in messages]
        turns = list(messages)
        if self.behaviour == "raises":
            raise RenderError("TemplateError", "a system turn may only come first")
        if self.behaviour == "refuses kwargs" and (kwargs or tools):
            raise RenderError("TypeError", "unexpected keyword")
        if self.behaviour == "user only" and "tool" in roles:
            raise RenderError("TemplateError", "no tools here")
        if self.behaviour == "drops":
            turns = [turn for turn in turns if turn["role"] != "system"]
        if self.behaviour == "drops tools":
            turns = [turn for turn in turns if turn["role"] != "tool"]
        if self.behaviour == "moves":
            turns.sort(key=lambda turn: turn["role"] != "system")
        if self.behaviour == "moves to the end":
            turns.sort(key=lambda turn: turn["role"] == "system")
        return "".join(f"<{turn['role']}>{turn.get('content')}" for turn in turns)

    def render_request(
        self, request: Request, *, add_generation_prompt: bool = True, profile: Any = None
    ) -> str:
        messages = [message.data for message in request.messages]
        return self.render(
            messages,
            tools=request.tools,
            kwargs=request.kwargs,
            add_generation_prompt=add_generation_prompt,
            now=request.now,
        )


@pytest.fixture(scope="session")
def fake_template() -> type[FakeTemplate]:
    return FakeTemplate
