"""What holds for all tests."""

import os

import hypothesis
import pytest

# How long an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("tplaudit", deadline=None)
hypothesis.settings.load_profile("tplaudit")


@pytest.fixture(autouse=True, scope="session")
def no_calibrations_of_this_machine():
    """Keep the calibrations of whoever runs the tests out of them, and theirs out of his."""
    before = os.environ.get("TPLAUDIT_CACHE_DIR")
    os.environ["TPLAUDIT_CACHE_DIR"] = os.devnull
    yield
    if before is None:
        del os.environ["TPLAUDIT_CACHE_DIR"]
    else:
        os.environ["TPLAUDIT_CACHE_DIR"] = before
