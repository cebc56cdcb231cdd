from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.attribution.prompt_diff import DiffSide, compare, unified


def test_a_diff_of_lines_ends_where_the_text_ends() -> None:
    text = unified("a\u2028b\r\nc", "a\u2028b\r\nd\n", "old", "new")
    assert text == "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\u2028b\r\n-c\n\\ No newline at end of file\n+d\n"


def test_equal_and_missing_prompts() -> None:
    one, other = DiffSide("a", 1, None), DiffSide("b", 1, "boom")
    assert compare(one, "x", one, "x").unified == ""
    assert compare(one, "x", one, "x").same is True
    missing = compare(one, "x", other, None)
    assert (missing.same, missing.shared_chars, missing.unified) == (None, None, None)


@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_a_diff_leads_from_one_text_to_the_other(old: str, new: str) -> None:
    body = unified(old, new, "o", "n").split("\n")
    found = compare(DiffSide("o", 1, None), old, DiffSide("n", 1, None), new)
    assert found.same is (old == new)
    assert found.shared_chars is not None
    assert old[: found.shared_chars] == new[: found.shared_chars]
    added = sum(line.startswith("+") and not line.startswith("+++") for line in body)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in body)
    lines = [text.count("\n") + (not text.endswith("\n") and text != "") for text in (old, new)]
    assert added - removed == lines[1] - lines[0]
