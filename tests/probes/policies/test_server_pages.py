"""docs/policies: the pages of the servers that are not forks of oMLX explain every option and value."""

from __future__ import annotations

from pathlib import Path

import pytest
from tplaudit.probes.policies.registry import POLICIES

NAMES = """llama-cpp vllm sglang ollama
rapid-mlx vllm-mlx mlx-vlm mtplx mlx-lm lm-studio""".split()
PAGES = Path(__file__).parents[3] / "docs" / "policies"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_explains_every_option(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert "<!-- prepared: " in page
    for option, values in POLICIES[name].options.items():
        assert f"`{option}`" in page
        assert [value for value in values if f"`{value}`" not in page] == []
