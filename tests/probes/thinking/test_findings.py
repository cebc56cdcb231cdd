from reasoning_templates import examine
from tplaudit.probes.findings import Finding
from tplaudit.probes.thinking.thinking import ThinkingReport, thinking_findings


def rules(report: ThinkingReport) -> dict[str, Finding]:
    return {each.rule: each for each in thinking_findings(report)}


def test_findings() -> None:
    comment = rules(examine("loop.index0 > ns.last", head="\n{#- preserve_thinking -#}"))
    assert comment["thinking-mention-without-effect"].line == 2
    assert "oMLX concludes from the name alone" in comment["thinking-mention-without-effect"].message
    assert "history-stripped-without-knob" in comment
    missed = rules(examine("clear_thinking is false or loop.index0 > ns.last"))
    assert set(missed) == {"thinking-knob-missed"}
    assert missed["thinking-knob-missed"].help == "Set clear_thinking=false among the chat-template kwargs"
    assert "but oMLX will not set it" in missed["thinking-knob-missed"].message
    both = rules(examine("keep_past_thinking or loop.index0 > ns.last"))
    assert "oMLX and llama.cpp will not set it" in both["thinking-knob-missed"].message
    assert rules(examine("true")) == rules(examine("false")) == {}
    assert rules(examine("preserve_thinking or loop.index0 > ns.last")) == {}
    needs = rules(examine("enable_thinking is false and preserve_thinking or loop.index0 > ns.last"))
    assert needs["thinking-mention-without-effect"].severity == "note"
    assert "unless enable_thinking=false" in needs["thinking-mention-without-effect"].message
    calls = rules(examine("loop.index0 > ns.last or (preserve_thinking and m.tool_calls)"))
    assert "preserve_thinking=true keeps that of turns" in calls["history-stripped-without-knob"].message
