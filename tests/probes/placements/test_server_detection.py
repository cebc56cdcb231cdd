"""What servers conclude about templates of one behaviour each, and where they are wrong."""

from collections.abc import Callable
from typing import Any

import pytest
from tplaudit.fixtures import template
from tplaudit.probes.placements.mid_system import examine_placements
from tplaudit.probes.placements.placements import TOOLS
from tplaudit.probes.placements.server_detection import PASSING, ServerReport, examine_servers
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.omlx_probe import CALL_ID
from tplaudit.probes.templates.template import ChatTemplate

TURN = "{{ '<' + m.role + '>' + (m.content or '') }}"
LOOP = "{% for m in messages %}" + TURN + "{% endfor %}"
PAIRS = ("user/tail", "user/between", "tool/tail", "tool/between")
EVERY = dict.fromkeys(PAIRS, True)
NONE = dict.fromkeys(PAIRS, False)
USER_ONLY = EVERY | {"tool/tail": False, "tool/between": False}
BETWEEN_ONLY = EVERY | {"user/tail": False, "tool/tail": False}


def raising(condition: str) -> str:
    return LOOP.replace(TURN, f"{{% if {condition} %}}{{{{ raise_exception('no') }}}}{{% endif %}}{TURN}")


TEMPLATES = {
    "writes every role in place": LOOP,
    "raises on a later system": raising("m.role == 'system' and not loop.first"),
    "drops a later system": LOOP.replace(
        TURN, "{% if m.role != 'system' or loop.first %}" + TURN + "{% endif %}"
    ),
    "moves systems to the front": "{% for m in messages if m.role == 'system' %}" + TURN + "{% endfor %}"
    "{% for m in messages if m.role != 'system' %}" + TURN + "{% endfor %}",
    "raises on a second system": "{% if messages | selectattr('role', 'eq', 'system') |list|length > 1 %}"
    "{{ raise_exception('no') }}{% endif %}" + LOOP,
    "raises on role tool": raising("m.role == 'tool'"),
    "drops a system that is last": LOOP.replace(
        TURN, "{% if m.role != 'system' or not loop.last %}" + TURN + "{% endif %}"
    ),
}
#: Per template: oMLX, oMLX with a leading system, vLLM and SGLang.
EXPECTED: dict[str, tuple[dict[str, bool], dict[str, bool], str, str]] = {
    "writes every role in place": (EVERY, EVERY, "inline", "inline"),
    "raises on a later system": (NONE, NONE, "hoist", "hoist"),
    "drops a later system": (NONE, NONE, "inline", "hoist"),
    "moves systems to the front": (NONE, NONE, "inline", "inline"),
    "raises on a second system": (EVERY, NONE, "hoist", "hoist"),
    "raises on role tool": (USER_ONLY, USER_ONLY, "inline", "inline"),
    "drops a system that is last": (BETWEEN_ONLY, BETWEEN_ONLY, "inline", "inline"),
}


def servers(text: str | ChatTemplate, **kwargs: Any) -> dict[str, ServerReport]:
    given = ChatTemplate({"default": text}, source="t") if isinstance(text, str) else text
    return {server.name: server for server in examine_servers(given, examine_placements(given), **kwargs)}


@pytest.mark.parametrize("behaviour", TEMPLATES)
def test_detection_by_behaviour(behaviour: str) -> None:
    found = servers(TEMPLATES[behaviour])
    omlx, leading, vllm, sglang = EXPECTED[behaviour]
    assert found["omlx"].supported == omlx
    assert found["omlx:pr-1991"].supported == leading
    assert (found["vllm"].decides, found["sglang"].decides) == (vllm, sglang)
    assert set(found["vllm"].supported.values()) == {vllm == "inline"}


def test_what_omlx_does_at_each_placement() -> None:
    assert servers(LOOP)["omlx"].decides == "inline"
    strict = servers(TEMPLATES["raises on a later system"])["omlx"]
    assert strict.decides == "hoist"
    assert strict.at == {
        "user/tail": "note",
        "user/between": "note",
        "tool/tail": "hoist",
        "tool/between": "hoist",
    }
    assert "after a user turn it becomes a [System note]" in strict.consequence
    assert "after a tool result all system turns are joined into one first message" in strict.consequence
    assert "except before a user turn" in servers(LOOP)["omlx"].consequence


@pytest.mark.parametrize("name", servers(LOOP))
def test_a_name_and_its_policy_are_what_policy_takes(name: str) -> None:
    server = servers(LOOP)[name]
    assert parse_policy(server.policy).name == server.policy
    assert parse_policy(name).name == name


def test_where_servers_are_wrong() -> None:
    found = servers(TEMPLATES["raises on a second system"])
    assert found["omlx"].false_positives == PAIRS  # it asks without a leading system
    assert found["omlx:pr-1991"].false_positives == ()
    assert servers(TEMPLATES["drops a later system"])["vllm"].false_positives[:2] == (
        "user/tail",
        "user/between",
    )
    assert len(servers(TEMPLATES["moves systems to the front"])["sglang"].false_positives) == 9
    assert servers(TEMPLATES["raises on a later system"])["vllm"].false_positives == ()
    assert not any(server.false_positives or server.false_negatives for server in servers(LOOP).values())


def test_a_refused_call_id_is_told_apart_from_the_placement() -> None:
    ids = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
        "{{ raise_exception('nine, please') }}{% endif %}{% endfor %}"
    )
    found = servers(LOOP.replace("{% for m in messages %}", ids))["omlx"]
    assert found.supported == USER_ONLY
    assert found.rejected_ids == (CALL_ID,)
    assert found.false_negatives == ("tool/tail", "tool/between")
    assert servers(TEMPLATES["raises on role tool"])["omlx"].rejected_ids == ()


def test_requests_with_tools_may_get_another_answer() -> None:
    text = "{% if tools and messages[-1].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + LOOP
    found = servers(text)["omlx"]
    assert found.supported == EVERY
    assert found.with_tools == BETWEEN_ONLY
    assert servers(LOOP)["omlx"].with_tools == {}


def test_kwargs_reach_omlxs_probe_and_a_type_error_drops_them() -> None:
    text = (
        "{% macro turn(m) %}"
        + TURN
        + (
            "{% endmacro %}{% for m in messages %}{{ turn(m, level=effort) if effort else turn(m) }}"
            "{% endfor %}"
        )
    )
    assert servers(text, kwargs={"effort": "low"})["omlx"].supported == EVERY  # rendered again without
    other = raising("quiet and m.role == 'system'")
    assert servers(other, kwargs={"quiet": True})["omlx"].supported == NONE
    assert servers(other)["omlx"].supported == EVERY


def test_servers_that_ask_nothing_do_what_the_template_does() -> None:
    for name in PASSING:
        assert servers(TEMPLATES["raises on a later system"])[name].decides == "raise"
        assert servers(TEMPLATES["raises on a later system"])[name].supported == NONE
        assert servers(LOOP)[name].supported == EVERY
        dropped = servers(TEMPLATES["drops a later system"])[name].consequence
        assert dropped == "the template leaves it out: the model never sees it"
    assert "HTTP 404" in servers(TEMPLATES["raises on a later system"])["mlx-lm"].consequence


class Declaring(ChatTemplate):
    supports_mid_system_messages = False


class Relocating(ChatTemplate):
    @property
    def relocate_mid_system_messages(self) -> Callable[..., Any]:  # type: ignore[override]
        def hook(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
            if any(message["role"] == "tool" for message in messages):
                return None
            reminders = [
                {**message, "role": "latest_reminder"} for message in messages if message["role"] == "system"
            ]
            return [*reminders, *(message for message in messages if message["role"] != "system")]

        return hook


def test_an_object_may_declare_that_it_cannot() -> None:
    found = servers(Declaring({"default": LOOP}, source="t"))
    assert found["omlx"].supported == found["omlx:pr-1991"].supported == NONE
    assert "declares" in found["omlx"].why
    assert found["omlx"].false_negatives == PAIRS


def test_the_relocation_hook_comes_first() -> None:
    found = servers(Relocating({"default": LOOP}, source="t"))["omlx"]
    assert found.consequence.startswith("the template's own hook moves it after a user turn; else")


def test_a_server_that_passes_on_gets_what_the_template_does() -> None:
    moving = servers(template("moving").read_text(encoding="utf-8"))
    front = "the template writes it in the first system block at the front, and all from there on is computed"
    for name in ("vllm", "sglang", "mlx-lm"):
        assert moving[name].consequence == f"{front} again"
    some = servers(TEMPLATES["raises on role tool"])["llama.cpp"].consequence
    assert some == "after a tool result what the template does could not be tested"


def test_sglang_is_quoted_with_the_function_that_its_test_lacks() -> None:
    why = servers(TEMPLATES["raises on a later system"])["sglang"].why
    said = "a test of system, user, system, user, without what transformers adds, "
    assert why == f"{said}raises UndefinedError: 'raise_exception' is undefined"


def test_bundled_templates() -> None:
    decisions = {
        name: {
            server.name: server.decides
            for server in servers(template(name).read_text(encoding="utf-8")).values()
        }
        for name in ("strict", "in-place")
    }
    assert set(decisions["in-place"].values()) == {"inline"}
    assert set(decisions["strict"].values()) == {"hoist", "raise"}


def test_the_tool_list_of_the_matrix_is_not_omlxs() -> None:
    assert TOOLS[0]["function"]["name"] != "omlx_probe_tool"
