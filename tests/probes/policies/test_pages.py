"""docs/policies: every example is what the code gives, every option is explained, every policy is linked."""

import json
import re
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import POLICIES, parse_policy
from tplaudit.probes.transcripts.reader import open_transcript

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "policies").glob("*.md"))
TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]
#: `<!-- prepared: POLICY TEMPLATE TRANSCRIPT TURN -->`, then what `prepared` returns, then `<!-- end -->`.
EXAMPLE = re.compile(r"<!-- prepared: (\S+) (\S+) (\S+) (\d+) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def prepared(policy: str, template: str, transcript: str, turn: int) -> str:
    """What a policy makes of one turn: each message that the template gets, and what was done."""
    request = list(open_transcript(ROOT / transcript))[turn - 1]
    after = parse_policy(policy).prepare(request, load_template(fixtures.template(template)))
    lines = []
    for message in after.request.messages:
        said = json.dumps(message.content, ensure_ascii=False)
        calls = " and calls a tool" if message.data.get("tool_calls") else ""
        lines.append(f"{message.role:<10}{said}{calls}")
    for action in after.actions:
        where = ", ".join(map(str, action.messages))
        lines.append(f"-> {action.kind}{f' {where}' if where else ''}: {action.why}")
    return "```text\n" + "\n".join(lines) + "\n```\n"


EXAMPLES = [
    pytest.param(match, id=f"{page.stem}: {match[1]} turn {match[4]}")
    for page, text in zip(PAGES, TEXTS, strict=True)
    for match in EXAMPLE.finditer(text)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_what_the_code_gives(example: re.Match[str]) -> None:
    policy, template, transcript, turn, shown = example.groups()
    assert shown == prepared(policy, template, transcript, int(turn))


@pytest.mark.parametrize("name", POLICIES)
def test_a_page_has_an_example_and_explains_every_option(name: str) -> None:
    page = next(text for text in TEXTS if name in text.partition("\n")[0].removeprefix("# ").split(", "))
    assert EXAMPLE.search(page)
    for named, option in POLICIES[name].options.items():
        assert f"`{named}`" in page
        assert [value for value in option.values if f"`{value}`" not in page] == []
