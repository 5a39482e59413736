"""Streams whose distribution of keys is known, to compare estimates with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.kernels.array_types import Int64s


@dataclass(frozen=True)
class Known:
    """A distribution over R's keys, and how tuples are drawn from it: so many, with a seed."""

    name: str
    exact: KeyFrequencies
    draw: Callable[[int, int], Int64s]

    @property
    def num_keys(self) -> int:
        return round(self.exact.num_keys)

    def __str__(self) -> str:
        return self.name


def zipf(exponent: float, keys: int, unasked: int = 0) -> Known:
    exact = KeyFrequencies.zipf(exponent, keys)
    if unasked:
        exact = KeyFrequencies(np.append(exact.keys, float(unasked)), np.append(exact.probability, 0.0))
    name = f"Zipf {exponent} over {keys:.0e} of {keys + unasked:.0e} keys"
    return Known(name, exact, lambda tuples, seed: Zipf(exponent, keys, seed=seed).keys(tuples))


def hot_set(hot: int, share: float, keys: int) -> Known:
    exact = KeyFrequencies(np.array([hot, keys - hot], np.float64), np.array([share / hot, (1 - share) / (keys - hot)]))

    def draw(tuples: int, seed: int) -> Int64s:
        random = np.random.default_rng(seed)
        return np.where(
            random.random(tuples) < share, random.integers(0, hot, tuples), random.integers(hot, keys, tuples)
        )

    return Known(f"{hot} keys with {share} over {keys:.0e} keys", exact, draw)


EVERY = [
    *(zipf(exponent, keys) for exponent in (0.0, 0.5, 1.0, 1.5) for keys in (10**4, 10**6, 10**9)),
    hot_set(100, 0.9, 10**6),
    hot_set(100, 0.9, 10**9),
    hot_set(10_000, 0.9, 10**6),
    zipf(0.0, 1, unasked=10**6 - 1),
    zipf(0.0, 5_000, unasked=10**6),
    zipf(0.0, 20_000, unasked=10**8),
    zipf(1.0, 20_000, unasked=10**8),
]
