"""Templates whose generation prompt can be cut off; test_remembered_prompts.py renders more of them."""

from __future__ import annotations

import pytest
from tplaudit.probes.templates.worker.evaluation import in_order, parse_template
from tplaudit.probes.templates.worker.prompt_end import generation_prompt_ends


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("{{ messages }}{% if add_generation_prompt %}a{% endif %}", True),
        ("{{ messages }}", True),
        (
            "{% if add_generation_prompt and x %}{% endif %}{% if x and add_generation_prompt %}{% endif %}",
            True,
        ),
        ("{% if add_generation_prompt %}a{% endif %}{{ messages }}", False),
        ("{% if add_generation_prompt %}a{% else %}b{% endif %}", False),
        ("{% if add_generation_prompt or x %}a{% endif %}", False),
        ("{% if add_generation_prompt == true %}a{% endif %}", False),
        ("{% set add_generation_prompt = x %}{% if add_generation_prompt %}a{% endif %}", False),
    ],
)
def test_what_a_template_does_with_the_flag(text: str, ends: bool) -> None:
    tree = parse_template(text)
    assert generation_prompt_ends(tree, [in_order(node) for node in tree.body]) is ends
