from datetime import UTC, datetime
from typing import Any

import pytest
from tplaudit.probes.transcripts.checks import read_timestamp

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "time"),
    [
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        (NOON.timestamp(), NOON),
        (int(NOON.timestamp() * 1000), NOON),
        ("noon", None),
        (True, None),
        (-1e30, None),
        (None, None),
    ],
)
def test_times_of_logs(written: Any, time: datetime | None) -> None:
    assert read_timestamp(written) == time
