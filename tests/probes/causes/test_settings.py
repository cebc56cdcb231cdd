from __future__ import annotations

from tplaudit.probes.causes.settings import CLIENT_SETTINGS, kwarg_line, other_policies


def test_lines_to_paste() -> None:
    assert kwarg_line("mlx-lm", "preserve_thinking", True) == (
        "mlx_lm.server … --chat-template-args '{\"preserve_thinking\": true}'"
    )
    assert "in every request" in kwarg_line("as-is", "preserve_thinking", True)
    assert "--chat-template-kwargs" in kwarg_line("llama-cpp:reasoning_preserve=off", "a", 1)
    for text, name in (
        ("x-anthropic-billing-header: cc_version=2; cch=1a2b3;", "CLAUDE_CODE_ATTRIBUTION_HEADER=0"),
        ("<total_tokens>14999841 tokens left</total_tokens>", "totalTokensReminder=off"),
        ("gitStatus: This is the git status", "includeGitInstructions=false"),
    ):
        assert [each.set for each in CLIENT_SETTINGS if each.without(text) != text] == [name]
    for text in ("You pilot ships.", "Never run git status in this repository.", "Use `gitStatus` there."):
        assert all(each.without(text) == text for each in CLIENT_SETTINGS)
    assert [each.policy for each in other_policies("omlx-strict")][:2] == ["omlx", "as-is"]
    assert [each.policy for each in other_policies("note")] == ["as-is", "note+merge"]
    assert "hoist" in [each.policy for each in other_policies("hoist+merge")]
