"""Frequencies estimated from a sample of a known distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.sampled_frequencies import frequencies_of_sample
from semistream.errors import InvalidArgument
from tests.costs.distributions import EVERY, Known, zipf

SAMPLE = 16_384


def assert_close(found: KeyFrequencies, exact: KeyFrequencies, sample: int, *, points: float, rel: float) -> None:
    """Shares within some points for caches up to the size of the sample, and ten times the sample within a part."""
    for hottest in (1, 10, 100, 1000, sample):
        assert found.share(hottest) == pytest.approx(exact.share(hottest), abs=points / 100), hottest
    assert found.distinct(10 * sample) == pytest.approx(exact.distinct(10 * sample), rel=rel)
    num_pages = max(round(exact.num_keys) // 50, 1)
    assert found.pages(num_pages, 10 * sample) == pytest.approx(exact.pages(num_pages, 10 * sample), rel=rel)


@pytest.mark.parametrize("known", EVERY, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_sample_tells_the_distribution(known: Known, seed: int) -> None:
    found = frequencies_of_sample(known.draw(SAMPLE, seed), known.num_keys)
    assert found.num_keys == pytest.approx(known.exact.num_keys, rel=1e-9)
    assert_close(found, known.exact, SAMPLE, points=3, rel=0.1)


@settings(deadline=None, max_examples=25)
@given(exponent=st.floats(0.0, 2.0), log_keys=st.floats(4.0, 9.0), seed=st.integers(0, 1000))
def test_any_exponent_over_any_number_of_keys(exponent: float, log_keys: float, seed: int) -> None:
    """The median of nine samples: near an exponent of 0.2 a single one may look like fewer, equally frequent keys."""
    known = zipf(exponent, int(10**log_keys))
    found = [frequencies_of_sample(known.draw(SAMPLE, 9 * seed + draw), known.num_keys) for draw in range(9)]
    for hottest in (1, 10, 100, 1000, SAMPLE):
        share = np.median([each.share(hottest) for each in found])
        assert share == pytest.approx(known.exact.share(hottest), abs=0.06), hottest
    distinct = np.median([each.distinct(10 * SAMPLE) for each in found])
    assert distinct == pytest.approx(known.exact.distinct(10 * SAMPLE), rel=0.15)
    num_pages = max(round(known.exact.num_keys) // 50, 1)
    pages = np.median([each.pages(num_pages, 10 * SAMPLE) for each in found])
    assert pages == pytest.approx(known.exact.pages(num_pages, 10 * SAMPLE), rel=0.15)


def test_a_tail_that_looks_like_two_levels_by_chance_is_still_a_power_law() -> None:
    known = zipf(1.5322996435959095, 10**4)
    found = frequencies_of_sample(known.draw(SAMPLE, 730), known.num_keys)
    assert_close(found, known.exact, SAMPLE, points=3, rel=0.1)


@pytest.mark.parametrize("asked", [2_000, 10_000, 50_000])
def test_how_many_keys_are_ever_asked_for(asked: int) -> None:
    known = zipf(0.0, asked, unasked=10**8)
    assert frequencies_of_sample(known.draw(SAMPLE, 3), known.num_keys).asked_keys == pytest.approx(asked, rel=0.06)


@settings(deadline=None, max_examples=60)
@given(codes=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), min_size=1), num_keys=st.integers(1, 10**9))
def test_any_codes_are_a_distribution(codes: list[int], num_keys: int) -> None:
    found = frequencies_of_sample(np.array(codes, np.int64), num_keys)
    assert found.num_keys >= max(num_keys, len(set(codes))) * (1 - 1e-9)
    assert found.share(found.num_keys) == pytest.approx(1)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="the sample is empty"):
        frequencies_of_sample(np.empty(0, np.int64), 10)
    with pytest.raises(InvalidArgument, match="num_keys is 0"):
        frequencies_of_sample(np.zeros(5, np.int64), 0)
