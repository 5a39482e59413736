"""Pairs of Zipf streams: drawn independently, with the same, unrelated or opposite hot keys."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.datasets import Zipf, ZipfPair
from semistream.errors import InvalidArgument

DOMAIN, ROWS = 50, 100_000


def shares(keys: np.ndarray) -> np.ndarray:
    return np.bincount(keys, minlength=DOMAIN) / keys.size


def drawn(correlation: str, exponent: float | tuple[float, float] = 1.0) -> tuple[np.ndarray, np.ndarray]:
    left, right = ZipfPair(exponent, DOMAIN, correlation=correlation, seed=5).keys(ROWS)  # type: ignore[arg-type]
    return left, right


def expected(exponent: float) -> np.ndarray:
    """Frequencies by Zipf's law, the highest first."""
    weights = np.arange(1, DOMAIN + 1) ** -exponent
    return weights / weights.sum()


def near(shown: np.ndarray, true: np.ndarray) -> bool:
    """Within five standard deviations, all of them."""
    return bool((np.abs(shown - true) <= 5 * np.sqrt(true * (1 - true) / ROWS)).all())


@pytest.mark.parametrize("correlation", ["correlated", "uncorrelated", "anti-correlated"])
def test_each_stream_is_zipf_by_its_own_ranks(correlation: str):
    pair = ZipfPair((1.0, 0.5), DOMAIN, correlation=correlation, seed=5)  # type: ignore[arg-type]
    left, right = pair.keys(ROWS)
    assert near(shares(left)[pair.left.hot_keys(DOMAIN)], expected(1.0))
    order = pair.right.hot_keys(DOMAIN)
    assert near(shares(right)[order[::-1] if correlation == "anti-correlated" else order], expected(0.5))


def test_correlated_streams_have_the_same_hot_keys_and_opposite_ones_the_reverse():
    pair = ZipfPair(1.0, DOMAIN, correlation="correlated", seed=5)
    assert (pair.left.hot_keys(DOMAIN) == pair.right.hot_keys(DOMAIN)).all()
    # As the paper states, correlation changes the number of pairs.
    pairs = {name: shares(a) @ shares(b) for name in ("correlated", "anti-correlated") for a, b in [drawn(name)]}
    assert pairs["correlated"] == pytest.approx(expected(1.0) @ expected(1.0), rel=0.05)
    assert pairs["anti-correlated"] == pytest.approx(expected(1.0) @ expected(1.0)[::-1], rel=0.05)


def test_uncorrelated_streams_order_their_keys_on_their_own():
    """Over many seeds the hottest key of the one has any rank in the other."""
    ranks = []
    for seed in range(200):
        pair = ZipfPair(1.0, DOMAIN, seed=seed)
        ranks.append(int(np.flatnonzero(pair.right.hot_keys(DOMAIN) == pair.left.hot_keys(1)[0])[0]))
    assert abs(np.mean(ranks) - (DOMAIN - 1) / 2) < 5 * DOMAIN / np.sqrt(12 * 200)
    assert len(set(ranks)) > DOMAIN / 2


@pytest.mark.parametrize("correlation", ["correlated", "uncorrelated", "anti-correlated"])
def test_draws_of_the_two_streams_are_independent(correlation: str):
    left, right = drawn(correlation)
    together = np.zeros((DOMAIN, DOMAIN))
    np.add.at(together, (left, right), 1 / ROWS)
    assert np.abs(together - np.outer(shares(left), shares(right))).max() < 5 * 0.5 / np.sqrt(ROWS)


def test_uniform_streams():
    left, right = drawn("uncorrelated", 0.0)
    assert near(shares(left), np.full(DOMAIN, 1 / DOMAIN))
    assert near(shares(right), np.full(DOMAIN, 1 / DOMAIN))


def test_a_stream_is_the_same_however_it_is_cut():
    whole = ZipfPair(1.0, DOMAIN, seed=1).keys(1000)
    parts = ZipfPair(1.0, DOMAIN, seed=1)
    batches = list(parts.batches(rows=250, count=4, name="id"))
    assert parts.position == 1000
    for side, keys in enumerate(whole):
        assert np.concatenate([pair[side].column("id").to_numpy() for pair in batches]).tolist() == keys.tolist()
        times = np.concatenate([pair[side].column("time").to_numpy() for pair in batches])
        assert times.tolist() == list(range(1000))


def test_keys_of_ranks_are_the_hot_keys():
    stream = Zipf(1.0, 1000, seed=2)
    assert (stream.keys_of(np.arange(1, 1001)) == stream.hot_keys(1000)).all()
    with pytest.raises(InvalidArgument, match="rank is 0"):
        stream.keys_of(np.array([5, 0]))


def test_what_cannot_work_is_refused():
    with pytest.raises(InvalidArgument, match="'opposite'"):
        ZipfPair(1.0, DOMAIN, correlation="opposite")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="'time'"):
        ZipfPair(1.0, DOMAIN).batches(1, name="time")
