from __future__ import annotations

from tplaudit.probes.transcripts.grouping.conversation_names import ConversationName, Opening, names_of


def _opening(
    number: int, turns: list[int], text: str, system: str = "You mend.", tools: bytes = b"t"
) -> Opening:
    return Opening(number, turns, system, tools, (text,), 2)


def _names(
    *openings: Opening, called: dict[str, dict[int, int]] | None = None
) -> list[tuple[str | None, bool]]:
    return [(each.name, each.guessed) for each in names_of(openings, called or {})]


def test_the_only_conversation_is_main() -> None:
    assert _names(_opening(1, [1, 2], "Mend it.")) == [("main", False)]


def test_main_is_who_called_and_a_guess_where_nobody_did() -> None:
    small, large = _opening(1, [1], "a"), _opening(2, [2, 3, 4], "b", "You look.")
    assert _names(small, large) == [(None, False), ("main", True)]
    called = {"b": {1: 2}}
    assert _names(small, large, called=called) == [("main", False), ("sub-agent of 1", False)]


def test_the_nearest_of_several_callers() -> None:
    main, other = _opening(1, [1, 2, 3], "a"), _opening(2, [10, 11], "c")
    third = _opening(3, [12], "Look into it.")
    called = {"Look into it.": {1: 2, 2: 13}}
    assert _names(main, other, third, called=called)[2] == ("sub-agent of 2", False)


def test_a_calls_text_within_a_longer_first_text() -> None:
    task = "Look into all files of the folder."
    sub = _opening(2, [2], f"Today is Monday.\n{task}")
    assert _names(_opening(1, [1, 3], "a"), sub, called={task: {1: 3}})[1] == ("sub-agent of 1", False)
    far = _opening(2, [2], f"{'x ' * 100}{task}", "You look.")
    assert _names(_opening(1, [1, 3], "a"), far, called={task: {1: 3}})[1] == (None, False)


def test_a_compaction_is_a_guess_unless_it_says_so() -> None:
    main = _opening(1, [1, 2, 3], "Mend it.")
    assert _names(main, _opening(2, [4, 5], "And now this."))[1] == ("compaction of 1", True)
    summary = _opening(2, [4, 5], "This session is being continued from a previous conversation.")
    assert _names(main, summary)[1] == ("compaction of 1", False)
    # A conversation that goes on was not compacted.
    assert _names(_opening(1, [1, 2, 6], "Mend it."), _opening(2, [4, 5], "Summary: none."))[1] == (
        None,
        False,
    )


def test_a_title() -> None:
    main = _opening(1, [1, 3], "Mend it.")
    assert _names(main, _opening(2, [2], "Mend it.", "Give it a title.", b""))[1] == ("title", False)
    assert _names(main, _opening(2, [2], "For: Mend it.", "Five words.", b""))[1] == ("title", True)
    assert _names(main, _opening(2, [2], "Mend it.", "Five words."))[1] == (None, False)


def test_what_has_no_name_is_shown_by_its_number() -> None:
    assert ConversationName(3, None).shown == "conversation 3"
