from typing import Any

from chat_messages import BOUNDARY, CALLS, A, S, T, U, conversation, owners, request_of
from tplaudit.probes.conversation import Piece
from tplaudit.probes.policies.base import Rewrite
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.rewrite.user_notes import note_or_hoist, to_user_notes


def test_an_appended_note_starts_at_its_separator_and_ends_with_its_suffix() -> None:
    messages = conversation(("U", "q"), ("A", "a"), ("A", "b"), ("U", "host"), ("S", "n1"), ("S", "n2"))
    rewrite = to_user_notes(messages)
    assert isinstance(rewrite, Rewrite)
    host = rewrite.messages[-1]
    assert host.content == "host\n\n[System note]\nn1\n\nn2\n[/System note]"
    assert host.index == 3
    assert host.pieces == (Piece(0, 3), Piece(4, 4), Piece(22, 5))
    assert host.origin(21) == 4
    assert host.origin(len(host.content) - 1) == 5


def test_a_prepended_note_ends_where_the_separator_of_its_host_starts() -> None:
    host = note_or_hoist(conversation(("A", "a"), ("S", "n"), ("U", "host"))).messages[-1]
    note = "[System note]\nn\n[/System note]"
    assert host.content == f"{note}\n\nhost"
    assert host.pieces == (Piece(0, 1), Piece(len(note), 2))
    assert host.index == 2


def test_notes_on_both_sides_of_one_host() -> None:
    host = note_or_hoist(conversation(("A", "a"), ("S", "n"), ("U", "h"), ("S", "m"))).messages[-1]
    assert owners(host) == "1" * 30 + "2" * 3 + "3" * 32


def test_a_bare_note_belongs_to_the_system_message_and_its_keys_to_the_host() -> None:
    for empty in (None, ""):
        (host,) = note_or_hoist(conversation(("U", empty), ("S", "n"))).messages
        assert (host.index, host.pieces, host.origins) == (0, (Piece(0, 1),), (1,))
    (host,) = note_or_hoist(conversation(("U", []), ("S", "n"))).messages
    assert (host.index, host.pieces) == (0, (Piece(0, 1, 0),))


def test_a_note_in_a_list_covers_every_part() -> None:
    parts = [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2", "cache_control": {}}]
    messages = conversation(("A", "a"), ("U", parts), ("S", "n"))
    host = note_or_hoist(messages).messages[-1]
    assert host.pieces == (Piece(0, 1, 0), Piece(0, 1, 1), Piece(2, 2, 1))
    assert host.content[1] == {
        "type": "text",
        "text": "p2\n\n[System note]\nn\n[/System note]",
        "cache_control": {},
    }
    messages = conversation(("A", "a"), ("S", "n"), ("U", parts))
    host = note_or_hoist(messages).messages[-1]
    assert host.pieces == (Piece(0, 1, 0), Piece(30, 2, 0), Piece(0, 2, 1))


def test_every_branch_of_the_note_downgrade(fake_template: Any) -> None:
    picture = [{"type": "text", "text": "p"}, {"type": "image_url", "image_url": {"url": "x"}}]
    user, other, bound = U("u"), U("v"), U("b", **BOUNDARY)
    call, plain, tool, seen = A("", **CALLS), A("a"), T("r"), U(picture)
    end: list[dict[str, Any]] = []
    append, prepend, refuse = "append", "prepend", "refuse"
    table = [
        (user, end, append),
        (user, [plain], append),
        (user, [other], prepend),
        (user, [tool], refuse),
        (user, [seen], refuse),
        (plain, [other], prepend),
        (plain, end, refuse),
        (plain, [plain], refuse),
        (call, [other], refuse),
        (call, end, refuse),
        (call, [tool], refuse),
        (tool, [other], prepend),
        (tool, end, refuse),
        (tool, [plain], refuse),
        (tool, [tool], refuse),
        (seen, [other], prepend),
        (bound, [other], prepend),
        (seen, end, refuse),
        (bound, [plain], refuse),
    ]
    note = "[System note]\nn\n[/System note]"
    policy = parse_policy("note")
    for before, after, outcome in table:
        request = request_of([before, S("n"), *after])
        result = policy.prepare(request, fake_template())
        data = [message.data for message in result.request.messages]
        if outcome == append:
            assert data == [{**before, "content": f"u\n\n{note}"}, *after]
        elif outcome == prepend:
            assert data == [before, {**other, "content": f"{note}\n\nv"}]
        else:
            assert data == [S("n"), before, *after]
        assert any(action.kind == "refused" for action in result.actions) == (outcome == refuse)
