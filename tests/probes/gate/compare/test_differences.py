"""What it means that a verdict became another one."""

from itertools import permutations

import pytest
from tplaudit.probes.gate.compare.compare_placements import RANKS
from tplaudit.probes.gate.compare.differences import compare_ranks


@pytest.mark.parametrize(("base", "head"), list(permutations([*RANKS, "not-evaluated"], 2)))
def test_rising_is_fixed_and_falling_regressed(base: str, head: str) -> None:
    kind = compare_ranks(base, head, RANKS)
    if head == "not-evaluated":
        assert kind == "regressed"
    elif base == "not-evaluated":
        assert kind == ("fixed" if head in ("in-place", "unstable") else "changed")
    elif {base, head} == {"moved", "duplicated"}:
        assert kind == "changed"
    else:
        assert kind == ("fixed" if RANKS[head] < RANKS[base] else "regressed")


def test_the_contract_s_examples() -> None:
    assert compare_ranks("raises", "dropped", RANKS) == "regressed"
    assert compare_ranks("raises", "moved", RANKS) == "fixed"
    assert compare_ranks("in-place", "in-place", RANKS) is None
    assert compare_ranks("not-evaluated", "not-evaluated", RANKS) is None
