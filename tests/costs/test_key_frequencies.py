"""Key distributions against counts: all keys one by one, and draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument

exponents = st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.5, 3.0])


@settings(deadline=None, max_examples=60)
@given(exponent=exponents, keys=st.integers(1, 200_000), hottest=st.integers(0, 200_000), tuples=st.integers(1, 10**6))
def test_groups_say_the_same_as_all_keys_one_by_one(exponent: float, keys: int, hottest: int, tuples: int) -> None:
    grouped = KeyFrequencies.zipf(exponent, keys)
    every = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    every /= every.sum()
    assert grouped.num_keys == keys
    assert grouped.share(hottest) == pytest.approx(every[:hottest].sum(), rel=1e-3)
    asked = 1 - (1 - every) ** tuples
    assert grouped.distinct(tuples) == pytest.approx(asked.sum(), rel=1e-3)
    if grouped.share(hottest) < 0.999 and hottest < keys:
        left = every[hottest:] / every[hottest:].sum()
        assert grouped.rest(hottest).distinct(tuples) == pytest.approx((1 - (1 - left) ** tuples).sum(), rel=2e-2)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("tuples", [10, 1000, 30_000])
def test_the_pages_that_a_stream_asks_for(exponent: float, tuples: int) -> None:
    """Against draws of Zipf keys that lie anywhere in pages of 50."""
    keys, page_rows, draws = 20_000, 50, 8
    stream = Zipf(exponent, keys, seed=5)
    counted = [np.unique(stream.keys(tuples) // page_rows).size for _ in range(draws)]
    expected = KeyFrequencies.zipf(exponent, keys).pages(keys // page_rows, tuples)
    assert expected == pytest.approx(np.mean(counted), rel=0.05, abs=2)


@pytest.mark.parametrize("page_rows", [1, 2, 10])
def test_pages_of_few_keys(page_rows: int) -> None:
    """As many pages of one key are needed as there are different keys: pages are full, not hit at random."""
    frequencies, tuples = KeyFrequencies.zipf(0.5, 20_000), 15_000
    stream = Zipf(0.5, 20_000, seed=5)
    counted = [np.unique(stream.keys(tuples) // page_rows).size for _ in range(8)]
    assert frequencies.pages(20_000 // page_rows, tuples) == pytest.approx(np.mean(counted), rel=0.01)


def test_keys_in_a_cache_still_have_a_place_in_pages() -> None:
    rest = KeyFrequencies.zipf(1.0, 1000).rest(400)
    assert (rest.num_keys, rest.asked_keys) == (pytest.approx(1000), pytest.approx(600))
    assert KeyFrequencies.uniform(100).pages(1000, 1e9) == pytest.approx(1000)  # ten pages for each key


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=40), unseen=st.integers(0, 30))
def test_counts_are_a_distribution(counts: list[int], unseen: int) -> None:
    measured = KeyFrequencies.counted(counts, unseen)
    hottest = np.sort(counts)[::-1]
    assert measured.num_keys == len(counts) + unseen
    for n in range(len(counts) + 1):
        assert measured.share(n) == pytest.approx(hottest[:n].sum() / hottest.sum())


def test_what_is_no_distribution_is_refused() -> None:
    for keys, probability in (([1.0], [0.5]), ([2.0, 1.0], [0.25, 0.5]), ([-1.0], [-1.0]), ([], [])):
        with pytest.raises(InvalidArgument):
            KeyFrequencies(np.array(keys), np.array(probability))
    for exponent, number in ((-1.0, 10), (float("nan"), 10), (1.0, 0), (float("inf"), 3)):
        with pytest.raises(InvalidArgument):
            KeyFrequencies.zipf(exponent, number)
    with pytest.raises(InvalidArgument, match="no count is above 0"):
        KeyFrequencies.counted([0, 0])
