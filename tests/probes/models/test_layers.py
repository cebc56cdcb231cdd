import pytest
from tplaudit.probes.errors import UsageError
from tplaudit.probes.models.layers import Layers


@pytest.mark.parametrize("kind", ["", "mamba", "rotating", "rotating:0", "rotating:x", "plain+", "hybrid:3"])
def test_unknown_layers(kind):
    with pytest.raises(UsageError, match="is not a kind of layers"):
        Layers.of(kind)


@pytest.mark.parametrize(
    ("kind", "window", "recurrent"),
    [
        ("plain", None, False),
        ("quantised:4", None, False),
        ("rotating:512", 512, False),
        ("hybrid+rotating:512+chunked:8192", 8192, True),
        ("recurrent", None, True),
    ],
)
def test_layers(kind, window, recurrent):
    layers = Layers.of(kind)
    assert (layers.window, layers.recurrent) == (window, recurrent)
    assert layers.trimmable is (window is None and not recurrent)
    assert layers.sliceable_at(511) is not recurrent
    assert layers.sliceable_at(8192) is layers.trimmable
