import pytest
from tplaudit.cli.formats.durations import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0421, "0.042 s"), (0.996, "1.0 s"), (9.96, "10 s"), (99, "99 s"), (720, "12 min"), (12_240, "3.4 h")],
)
def test_each_time_has_its_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words
