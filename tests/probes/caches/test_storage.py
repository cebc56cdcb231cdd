"""What is stored of a turn."""

from __future__ import annotations

import pytest
from tplaudit.probes.caches.storage import stored_length
from tplaudit.probes.policies.servers.omlx_reasoning import output_cacheable


@pytest.mark.parametrize(
    ("setting", "native", "preserve_thinking", "cacheable"),
    [
        pytest.param(None, True, None, True, id="C1"),
        pytest.param(None, True, False, False, id="C2"),
        pytest.param(None, False, True, True, id="C3"),
        pytest.param(None, False, None, False, id="C4"),
        pytest.param(False, True, True, False, id="C5"),
        pytest.param(True, False, False, True, id="C6"),
    ],
)
def test_a_reply_that_thinks_is_stored_where_its_output_is_cacheable(
    setting, native, preserve_thinking, cacheable
):
    allowed = output_cacheable(setting, native, preserve_thinking)
    assert allowed is cacheable
    stored = stored_length(100, 40, open_think=True, output_cacheable=allowed)
    assert stored == (140 if cacheable else 100)


@pytest.mark.parametrize("cacheable", [True, False])
def test_a_reply_that_does_not_think_is_stored(cacheable):
    assert stored_length(100, 40, output_cacheable=cacheable) == 140


def test_only_the_prompt_is_stored_where_that_was_asked_for():
    assert stored_length(100, 40, "prompt") == 100
    assert stored_length(100, 0) == 100
