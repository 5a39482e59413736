"""Fingerprints against counting one by one and against draws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.costs.kernels import count_runs, expected_fingerprint, often_counted, thin_counts

codes = st.lists(st.integers(-5, 30), max_size=80).map(lambda values: np.sort(np.array(values, np.int64)))


@settings(deadline=None)
@given(codes=codes, excluded=st.sets(st.integers(-5, 30)), times=st.integers(1, 6))
def test_keys_that_came_once_twice_and_so_on(codes: np.ndarray, excluded: set[int], times: int) -> None:
    out = np.zeros(times, np.int64)
    tuples = count_runs(codes, np.array(sorted(excluded), np.int64), out)
    counts = Counter(code for code in codes.tolist() if code not in excluded)
    assert tuples == counts.total()
    expected = Counter(min(count, times) for count in counts.values())
    assert out.tolist() == [expected[i + 1] for i in range(times)]


@settings(deadline=None)
@given(codes=codes, least=st.integers(1, 6))
def test_keys_that_came_often(codes: np.ndarray, least: int) -> None:
    keys, counts = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    found = often_counted(codes, least, keys, counts)
    expected = sorted((code, count) for code, count in Counter(codes.tolist()).items() if count >= least)
    assert list(zip(keys[:found].tolist(), counts[:found].tolist(), strict=True)) == expected


@settings(deadline=None)
@given(codes=codes, least=st.integers(1, 6))
def test_thinned_counts_are_expected_to_be_the_true_ones(codes: np.ndarray, least: int) -> None:
    """With draws spread evenly over 0 to 1, the mean is exact."""
    total: Counter[int] = Counter()
    for number in range(least):
        kept_codes, counts = codes.copy(), np.empty(codes.size, np.int64)
        draws = np.full(codes.size, number / least)
        kept = thin_counts(kept_codes, least, draws, kept_codes, counts)  # in place
        assert np.all(counts[:kept] >= least)
        total.update(dict(zip(kept_codes[:kept].tolist(), counts[:kept].tolist(), strict=True)))
    assert total == {code: count * least for code, count in Counter(codes.tolist()).items()}


def test_the_expected_fingerprint_is_that_of_draws() -> None:
    random = np.random.default_rng(3)
    keys, rate, draws = np.array([3.0, 50.0, 1000.0]), np.array([700.0, 4.0, 0.1]), 400
    out = np.empty(8)
    distinct = expected_fingerprint(keys, rate, out)
    drawn = np.zeros(8)
    for number, mean in zip(keys.astype(int), rate, strict=True):
        counts = random.poisson(mean, (draws, number))
        drawn += [np.count_nonzero(counts == i) / draws for i in range(1, 8)] + [np.count_nonzero(counts >= 8) / draws]
    assert out == pytest.approx(drawn, rel=0.05, abs=0.1)
    assert distinct == pytest.approx(out.sum(), rel=1e-9)
