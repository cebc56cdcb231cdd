import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.unread import foreign_part, refuse_unread


def test_a_chat_message_may_hold_what_its_writer_keeps_in_it() -> None:
    session = {"type": "user", "sessionId": "1"}
    refuse_unread({"role": "user", **session}, "a:1")
    with pytest.raises(InputError, match="a:1: this is a Claude Code session"):
        refuse_unread(session, "a:1")


def test_a_part_is_foreign_to_other_apis_only() -> None:
    part = {"type": "tool_use"}
    foreign_part(part, "Anthropic Messages", "a:1")
    foreign_part({"type": ["tool_use"]}, "OpenAI chat", "a:1")
    with pytest.raises(InputError, match="Anthropic Messages content part"):
        foreign_part(part, "OpenAI chat", "a:1")
