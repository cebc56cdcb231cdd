import json
import re

import pytest
from gate_pairs import run
from tplaudit import fixtures


@pytest.mark.parametrize("head", ["in-place", "newline", "breaks-tools", "dropping"])
def test_every_hint_lets_its_change_pass(tplaudit, head: str) -> None:
    document = json.loads(run(tplaudit, head, "--json").stdout)
    meant = re.findall(r"--allow '?(changed:[^\s']+)", run(tplaudit, head).stdout)
    allowed = [item for pattern in meant for item in ("--allow", pattern)]
    after = json.loads(run(tplaudit, head, "--json", *allowed).stdout)
    changed = [change for change in document["changes"] if change["kind"] == "changed"]
    assert bool(changed) == bool(meant)
    assert all(change["accepted"] for change in after["changes"] if change["kind"] == "changed")
    assert after["warnings"] == []


def test_the_verdict_says_why_it_fails_where_nothing_is_worse(tplaudit) -> None:
    warned = run(tplaudit, "in-place", "--allow", "changed:nothing", "--fail-on", "warning")
    assert warned.stdout.splitlines()[1] == (
        "✗ fail: something is better than it was, and nothing is worse or different; there are warnings (1)."
    )
    chat = ("--transcripts", fixtures.transcript("chat"), "-p", "as-is", "--max-reprefill-ratio", "0")
    over = run(tplaudit, "in-place", *chat)
    assert over.stdout.splitlines()[1].endswith("is worse or different; 1 of 1 budgets not kept.")
