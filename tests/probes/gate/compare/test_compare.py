"""Comparing two behaviours: which prompts are held against which."""

from tplaudit.probes.gate.compare.compare import BehaviourComparison, compare
from tplaudit.probes.gate.observe.behaviour import Behaviour, Observing, observe
from tplaudit.probes.templates.template import ChatTemplate

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)
#: What a request with one user turn does not show.
LATER = "{% if loud is defined and loud and messages | length > 1 %}LOUD{% endif %}"


def observed(text: str, *variants: tuple[str, bool]) -> Behaviour:
    return observe(ChatTemplate({"default": text}, source="test"), variants, Observing())


def subjects(found: BehaviourComparison) -> set[str]:
    return {str(each.subject) for each in found.differences}


def test_a_side_without_a_switch_gives_its_last_prompt() -> None:
    """A signature leaves out the prompts of a switch that changes nothing; only the last one is rendered."""
    assert compare(observed(PLAIN), observed(PLAIN, ("loud", True))).differences == ()
    assert compare(observed(PLAIN, ("loud", True)), observed(PLAIN)).differences == ()


def test_what_a_switch_changes_in_the_last_prompt_is_found() -> None:
    found = compare(observed(PLAIN), observed(PLAIN + LATER, ("loud", True)))
    assert "plain/chat@loud=true" in subjects(found)
    assert "plain/chat" not in subjects(found)
    assert "plain/question@loud=true" not in subjects(found)
