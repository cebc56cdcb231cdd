"""The verdict on a placement, from prompts alone: the order of the checks."""

import pytest
from tplaudit.probes.placements.verdicts import Judgement, judge, worse

BEFORE = "<s>old <u>user\n"


@pytest.mark.parametrize(
    ("prompt", "verdict", "offset"),
    [
        ("<s>old <u>user\n<s>RUN<a>next", "in-place", 18),
        (
            "<s>old <u>user<s>RUN<a>next",
            "in-place",
            17,
        ),  # white space at the end of the earlier prompt is ignored
        ("<s>new <u>user\n<s>RUN<a>next", "unstable", 3),
        ("<s>old RUN<u>user\n<a>next", "moved", 7),
        ("<s>old <u>user\n<a>next RUN", "moved", 23),
        ("<s>old RUN<u>user\nRUN<a>next", "moved", 7),  # also when it stands twice
        ("<s>old <u>user\nRUN RUN<a>next", "duplicated", 19),
        ("<s>other <u>user\nRUN RUN<a>next", "duplicated", 21),  # before the prefix is looked at
        ("<s>old <u>user\n<a>next", "dropped", None),
        ("<s>other <u>user\n<a>next", "dropped", None),
        ("", "dropped", None),
        ("<s>old <u>user\nRUN", "in-place", 15),  # the successor is not in the prompt
    ],
)
def test_checks_come_in_order(prompt: str, verdict: str, offset: int | None) -> None:
    lowered = prompt.replace("RUN", "run")
    assert judge(BEFORE, lowered, ["run"], "user", "next") == Judgement(verdict, offset)  # type: ignore[arg-type]


def test_every_text_of_a_run_counts() -> None:
    assert judge("user", "user one two", ["one", "two"], "user", None).verdict == "in-place"
    assert judge("user", "user one", ["one", "two"], "user", None).verdict == "dropped"
    assert judge("user", "two user one", ["one", "two"], "user", None).verdict == "moved"
    assert judge("user", "user two one", ["one", "two"], "user", None).verdict == "moved"
    assert judge("user", "user one two two", ["one", "two"], "user", None).verdict == "duplicated"


def test_a_template_may_change_the_case_of_texts() -> None:
    assert judge("USER", "USER RUN", ["run"], "user", None).verdict == "in-place"
    assert judge("User", "Run User", ["run"], "user", None).verdict == "moved"


def test_a_text_before_its_predecessors_copies_is_moved_and_between_them_is_not() -> None:
    assert judge("user user", "run user user", ["run"], "user", None).verdict == "moved"
    assert judge("user user", "user run user", ["run"], "user", None).verdict == "unstable"


def test_ranks() -> None:
    assert worse("unstable", "in-place")
    assert worse("dropped", "raises")
    assert worse("raises", "moved")
    assert not worse("moved", "duplicated")
    assert not worse("duplicated", "moved")
    assert not worse("not-evaluated", "in-place")
    assert not worse("dropped", "not-evaluated")
