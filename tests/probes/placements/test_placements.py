import re

from tplaudit.probes.placements.mid_system import PlacementReport
from tplaudit.probes.placements.placements import FURTHER, MESSAGES, PLAIN, TEXTS, in_words


def test_the_plain_matrix_is_complete() -> None:
    combinations = {(case.preceding, case.placement, case.leading, case.role, case.tools) for case in PLAIN}
    assert len(combinations) == len(PLAIN) == 2 * 3 * 2 * 2 * 2 + 3 * 2 * 2
    assert {case.shape for case in FURTHER} == {
        "two-in-a-row",
        "two-runs",
        "between-results",
        "parallel-calls",
        "two-leading",
    }
    assert all(case.leading and case.role == "system" for case in FURTHER)
    assert all(case.tools for case in PLAIN + FURTHER if case.preceding == "tool")


def test_messages_suit_strict_templates() -> None:
    calls = [call for name in ("call", "calls", "call/text") for call in MESSAGES[name]["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", call["id"]) for call in calls)
    assert all(isinstance(call["function"]["arguments"], dict) for call in MESSAGES["calls"]["tool_calls"])
    results = [message for name, message in MESSAGES.items() if name.startswith("result")]
    assert all(
        message["name"] and message["tool_call_id"] == "auditcal" + message["tool_call_id"][-1]
        for message in results
    )
    texts = [text for name, text in TEXTS.items() if name != "developer"]
    assert not any(one in other for one in texts for other in texts if one is not other)


def test_places_in_words() -> None:
    every = [(case.preceding, case.placement) for case in PLAIN]
    assert in_words(every) == "everywhere"
    assert in_words([("user", "tail"), ("user", "between"), ("user", "before-user")]) == "after a user turn"
    assert (
        in_words([("user", "tail"), ("tool", "tail")])
        == "after a user turn and after a tool result (at the end)"
    )
    assert (
        in_words([("user", "tail"), ("tool", "between")])
        == "after a user turn (at the end) and after a tool result (before an assistant turn)"
    )


def test_reports_name_the_pair() -> None:
    row = PlacementReport("tool", "tail", True, "system", True, "plain", {}, "in-place")
    assert row.pair == "tool/tail"
