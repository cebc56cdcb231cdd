from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

USER = {"role": "user", "content": "Which checks fail?"}
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
BODY = {"messages": [USER], "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}


def test_reading_some_requests_reads_only_their_lines(write: Write) -> None:
    path = write(BODY, BODY, BODY, "broken")
    requests = iter(open_transcript(path))
    assert len(list(islice(requests, 3))) == 3
    with pytest.raises(InputError) as caught:
        next(requests)
    assert caught.value.where == f"{path}:4"
