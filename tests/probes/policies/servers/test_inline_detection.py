"""What oMLX, vLLM and SGLang conclude about templates of one behaviour each."""

from typing import Any

import pytest
from tplaudit.probes.conversation import Request
from tplaudit.probes.policies.rewrite.system_turns import Placement
from tplaudit.probes.policies.servers.inline_detection import SENTINEL, Detector, sglang_test, vllm_test
from tplaudit.probes.policies.servers.omlx_probe import Probe, judge_probe, probe_messages
from tplaudit.probes.templates.template import ChatTemplate

TURN = "<{{ message.role }}>{{ message.content }}"
LOOP = "{% for message in messages %}"
TEMPLATES = {
    "every role in place": LOOP + TURN + "{% endfor %}",
    "raises on a later system": LOOP
    + "{% if message.role == 'system' and not loop.first %}{{ raise_exception('not first') }}{% endif %}"
    + TURN
    + "{% endfor %}",
    "drops a later system": LOOP
    + "{% if message.role != 'system' or loop.first %}"
    + TURN
    + "{% endif %}{% endfor %}",
    "moves systems to the front": "{% for message in messages if message.role == 'system' %}"
    + TURN
    + "{% endfor %}{% for message in messages if message.role != 'system' %}"
    + TURN
    + "{% endfor %}",
    "raises on a second system": "{% set seen = namespace(system=false) %}"
    + LOOP
    + "{% if message.role == 'system' %}{% if seen.system %}{{ raise_exception('one only') }}{% endif %}"
    + "{% set seen.system = true %}{% endif %}"
    + TURN
    + "{% endfor %}",
    "raises on role tool": LOOP
    + "{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    + TURN
    + "{% endfor %}",
    "drops a system that is last": LOOP
    + "{% if message.role != 'system' or not loop.last %}"
    + TURN
    + "{% endif %}{% endfor %}",
}
PASS = "the template leaves the system turn in place"
# per template: u/tail, u/between, t/tail, t/between, u/tail behind a leading system, vLLM, SGLang
TABLE: dict[str, tuple[str | None, str | None, str | None, str | None, str | None, bool, bool]] = {
    "every role in place": (PASS, PASS, PASS, PASS, PASS, True, True),
    "raises on a later system": ("raises", "raises", "raises", "raises", "raises", False, False),
    "drops a later system": ("drops", "drops", "drops", "drops", "drops", True, False),
    "moves systems to the front": ("moves", "moves", "moves", "moves", "moves", True, True),
    "raises on a second system": (PASS, PASS, PASS, PASS, "raises", False, False),
    "raises on role tool": (PASS, PASS, "raises", "raises", PASS, True, True),
    "drops a system that is last": ("drops", PASS, "drops", PASS, "drops", True, True),
}
PLACES = [Placement(role, kind) for role in ("user", "tool") for kind in ("tail", "between")]


def template(text: str, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test", special_tokens=special_tokens)


@pytest.mark.parametrize("behaviour", TABLE)
def test_what_each_server_concludes(behaviour: str) -> None:
    given, request, probe = template(TEMPLATES[behaviour]), Request(()), Probe()
    *omlx, leading, vllm, sglang = TABLE[behaviour]
    for place, expected in zip(PLACES, omlx, strict=True):
        answer = probe(given, place, request)
        assert isinstance(expected, str)
        assert expected in answer.why
        assert answer.in_place == (expected == PASS)
    opening = {"role": "system", "content": "leading"}
    answer = judge_probe(given, PLACES[0], request, (opening, *probe_messages(PLACES[0])))
    assert isinstance(leading, str)
    assert leading in answer.why
    assert vllm_test(given).in_place == vllm
    assert sglang_test(given).in_place == sglang


@pytest.mark.parametrize(
    ("text", "vllm", "sglang"),
    [
        ("{{ bos_token + messages[0].content }}" + TEMPLATES["every role in place"], False, False),
        ("{{ bos_token }}" + TEMPLATES["every role in place"], True, True),
        ("{{ strftime_now('%Y') }}" + TEMPLATES["every role in place"], False, False),
        (
            "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}"
            + TEMPLATES["every role in place"],
            True,
            True,
        ),
        (LOOP + "{%- generation -%}" + TURN + "{% endgeneration %}{% endfor %}", False, False),
        ("{{ messages | no_such_filter }}", False, False),
        ("{% if", False, False),
        ("", False, False),
    ],
    ids=[
        "adds to a token",
        "writes a token",
        "asks for the time",
        "asks whether there is a clock",
        "generation tag",
        "unknown filter",
        "broken",
        "empty",
    ],
)
def test_both_ask_in_a_bare_environment(text: str, vllm: bool, sglang: bool) -> None:
    given = template(text, bos_token="<s>")
    assert (vllm_test(given).in_place, sglang_test(given).in_place) == (vllm, sglang)


def test_a_template_is_asked_once() -> None:
    asked: list[Any] = []

    def ask(given: ChatTemplate) -> Any:
        asked.append(given)
        return vllm_test(given)

    detector = Detector(ask)
    one, other = template(TEMPLATES["every role in place"]), template(TEMPLATES["drops a later system"])
    assert [detector(each).in_place for each in (one, other, one, other)] == [True, True, True, True]
    assert asked == [one, other]


def test_named_templates_without_a_default_are_merged_for() -> None:
    given = ChatTemplate({"tool_use": TEMPLATES["every role in place"]}, source="test")
    assert not vllm_test(given).in_place
    assert not sglang_test(given).in_place


def test_the_sentinel_is_not_in_any_answer() -> None:
    for text in TEMPLATES.values():
        assert SENTINEL not in sglang_test(template(text)).why
