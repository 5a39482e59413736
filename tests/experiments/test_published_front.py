"""FRONT as published: the best size of a cache against brute force, and what the paper says of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.published.front import FrontModel
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets.zipf import harmonic
from semistream.errors import InvalidArgument


@settings(deadline=None, max_examples=80)
@given(
    exponent=st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0, 1.2]),
    rows=st.integers(100, 5_000),
    share=st.floats(0.01, 0.9),
    row_bytes=st.sampled_from([32, 120, 1000]),
)
def test_no_other_number_of_cached_rows_is_better(exponent: float, rows: int, share: float, row_bytes: int) -> None:
    model = FrontModel(KeyFrequencies.zipf(exponent, rows), share * rows * row_bytes, rows, row_bytes)
    best = model.best_cached_rows()
    tried = [model.rate(h) for h in range(int(model.most_cached_rows) + 1)]
    assert 0 <= best <= model.most_cached_rows
    assert model.rate(best) >= max(tried) * (1 - 1e-4)


def test_the_setting_of_the_paper() -> None:
    """FRONT 3.2 and Fig. 2: exponent 1, R of 100 M tuples of 120 bytes; a small cache answers a large part, the best
    size lies strictly inside, and the curve falls on both sides of it.
    """
    rows, row_bytes = 100_000_000, 120
    model = FrontModel(KeyFrequencies.zipf(1.0, rows), 0.1 * rows * row_bytes, rows, row_bytes)
    assert model.hit_rate(1000) == pytest.approx(harmonic(1000, 1.0) / harmonic(rows, 1.0), rel=1e-9)
    best = model.best_cached_rows()
    assert 0.01 * model.most_cached_rows < best < 0.9 * model.most_cached_rows
    sizes = np.linspace(0, model.most_cached_rows, 41)
    rates = np.array([model.rate(size) for size in sizes])
    before, after = sizes <= best, sizes >= best
    assert np.all(np.diff(rates[before]) > 0)
    assert np.all(np.diff(rates[after]) < 0)
    assert model.rate(best) > 2 * model.rate(0)


def test_the_derivative_that_is_printed_has_no_root_and_the_right_one_has() -> None:
    rows, row_bytes = 10_000_000, 120
    model = FrontModel(KeyFrequencies.zipf(1.0, rows), 0.1 * rows * row_bytes, rows, row_bytes)
    cost, total = row_bytes + 8, rows * row_bytes

    def printed(h: float) -> float:
        """FRONT (6)."""
        step = model.hit_rate(h + 1) - model.hit_rate(h)
        return (model.memory_bytes - cost * h) / (total * (1 - model.hit_rate(h)) ** 2) * step

    def right(h: float) -> float:
        missed, step = 1 - model.hit_rate(h), model.hit_rate(h + 1) - model.hit_rate(h)
        return ((model.memory_bytes - cost * h) * step - cost * missed) / (total * missed**2)

    best = model.best_cached_rows()
    assert all(printed(h) > 0 for h in np.linspace(0, 0.999 * model.most_cached_rows, 100))
    assert right(0.9 * best) > 0 > right(1.1 * best)


def test_a_cache_for_every_key_that_is_asked_for_leaves_no_misses() -> None:
    frequencies = KeyFrequencies.counted([5] * 10, unseen=90)
    model = FrontModel(frequencies, 100 * 128, 100, 120)
    assert model.rate(10) == math.inf
    assert model.rate(model.best_cached_rows()) == math.inf


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_nonsense_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="memory_bytes is"):
        FrontModel(KeyFrequencies.uniform(10), value, 10, 120)
