"""The model of prefill time: it finds the law behind measurements, and says how far it is from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.cost.cost_model import ENOUGH, CostModel, Measured, fit

SIZES = [(new, depth) for depth in (0, 1000, 4000, 16000) for new in (48, 256, 1024, 4000)]
coefficients = st.floats(0, 1).map(lambda value: value if value > 1e-3 else 0.0)


def law(call, token, past, pair):
    return CostModel(call * 1e-2, token * 1e-4, past * 1e-6, pair * 1e-8)


def measured(model, noise=0.0, seed=0):
    random = np.random.default_rng(seed)
    return [
        Measured(new, depth, model.seconds(new, depth) * random.lognormal(0, noise)) for new, depth in SIZES
    ]


@settings(deadline=None, max_examples=25)
@given(call=coefficients, token=coefficients, past=coefficients, pair=coefficients)
def test_a_law_without_noise_is_found(call, token, past, pair):
    true = law(call, token, past, pair)
    if true.seconds(1, 0) == 0:
        return
    found = fit(measured(true))
    for new, depth in [*SIZES, (100, 60000), (90000, 0)]:
        assert found.seconds(new, depth) == pytest.approx(true.seconds(new, depth), rel=1e-6)
    assert found.error == pytest.approx(0, abs=1e-6)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000))
def test_with_noise_the_error_is_of_its_size(seed):
    found = fit(measured(law(1, 1, 1, 1), noise=0.1, seed=seed))
    assert 0.03 < found.error < 0.4
    assert 0.01 < found.median_error < 0.4
    assert found.seconds(500, 8000) == pytest.approx(law(1, 1, 1, 1).seconds(500, 8000), rel=0.3)
    assert found.error_of(500, 8000) == found.error * found.seconds(500, 8000)
    assert found.error_of(500, 80000) is None
    twice = found.scaled(2, 0.5)
    assert (twice.seconds(500, 8000), twice.error) == (pytest.approx(2 * found.seconds(500, 8000)), 0.5)


@settings(deadline=None, max_examples=25)
@given(
    runs=st.lists(
        st.builds(
            Measured, st.integers(0, 5000), st.integers(0, 100_000), st.floats(1e-4, 100, allow_nan=False)
        ),
        max_size=30,
    )
)
def test_predictions_are_never_negative_and_grow(runs):
    found = fit(runs)
    if found is None:
        assert not any(each.new_tokens for each in runs)
        return
    assert 0 <= found.seconds(100, 0) <= found.seconds(200, 0) <= found.seconds(200, 5000)
    assert found.longest == max(each.new_tokens + each.depth for each in runs if each.new_tokens)


def test_the_fit_is_the_best_of_all_without_negative_coefficients():
    """Against a search: no other coefficients nearby do better."""
    runs = measured(law(1, 0, 0, 1), noise=0.3)
    found = fit(runs)

    def missed(model):
        return sum((model.seconds(run.new_tokens, run.depth) / run.seconds - 1) ** 2 for run in runs)

    random = np.random.default_rng(1)
    names = ("per_call", "per_token", "per_depth", "per_pair")
    scale = (1e-3, 1e-5, 1e-7, 1e-9)
    for _ in range(2000):
        moved = {
            name: max(0.0, getattr(found, name) + random.normal() * size * random.choice([1e-3, 0.1, 1]))
            for name, size in zip(names, scale, strict=True)
        }
        assert missed(CostModel(**moved)) >= missed(found) - 1e-12


def test_few_measurements_give_a_rate_without_an_error():
    runs = [Measured(100, depth, 0.5) for depth in range(ENOUGH - 1)]
    found = fit(runs)
    assert (found.seconds(100, 0), found.seconds(100, 90000), found.error) == (0.5, 0.5, None)
    assert found.error_of(10, 0) is None


def test_nothing_measured_gives_nothing():
    assert fit([]) is None
    assert fit([Measured(0, 500, 0.1)]) is None


def test_a_prefill_of_nothing_takes_no_time():
    assert law(1, 1, 1, 1).seconds(0, 5000) == 0
