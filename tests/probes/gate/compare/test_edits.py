"""What two prompts differ in."""

from hypothesis import example, given
from hypothesis import strategies as st
from tplaudit.probes.gate.compare.edits import edit

PROMPTS = st.lists(st.sampled_from(["<a>\n", "word\n", "</a>\n", "\n", "end", "<a>word"]), max_size=12).map(
    "".join
)


@given(PROMPTS, PROMPTS)
@example("x", "")
@example("", "x")
def test_an_edit_shows_what_was_taken_out_and_put_in(base: str, head: str) -> None:
    if base == head:
        return
    found = edit(base, head)
    assert base[: found.offset] == head[: found.offset]
    assert base[: found.offset + 1] != head[: found.offset + 1]
    assert found.pairs
    for removed, added in found.pairs:
        assert removed != added
        assert removed in base
        assert added in head
    assert all(lines and all(line[0] in " -+" for line in lines) for lines in found.hunks.values())


def test_words_of_conversations_do_not_make_edits_different() -> None:
    first, second = edit("zqfoozq a\n", "zqfoozq b\n"), edit("zqbarzq a\n", "zqbarzq b\n")
    assert first.pairs == second.pairs == (("a", "b"),)
    assert edit("a\n", "a zqfoozq\n").pairs == (("", " …"),)


def test_edits_end_at_words_and_tags() -> None:
    assert edit("is true", "is True").pairs == (("true", "True"),)
    assert edit("<think>\n", "</think>\n").pairs == (("<think>", "</think>"),)
    assert edit("a<|im_end|>\n", "a\n<|im_end|>\n").pairs == (("", "\n"),)


def test_lines_show_their_ends() -> None:
    (lines,) = edit("one\ntwo\nthree\nfour\n", "one\ntwo\t\nthree\nfour\n").hunks.values()
    assert lines == (" one⏎", "-two⏎", "+two⇥⏎", " three⏎", " four⏎")


def test_long_hunks_are_cut() -> None:
    (lines,) = edit("", "".join(f"{number}\n" for number in range(50))).hunks.values()
    assert lines[-1] == "+… 42 more lines"
    (lines,) = edit("", "x" * 1000).hunks.values()
    assert len(lines[0]) < 200
