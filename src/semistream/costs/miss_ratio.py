"""MissRatioCurve: hit rates of caches of all sizes, from a sample of the stream in its order.

A long sample is reduced to all tuples of some keys (`HashedSample`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from semistream.costs.kernels import (
    choose_by_hash,
    count_chosen,
    link_references,
    stack_distances,
)
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Floats, Int32s, Int64s

_SLACK = 2  # accepted excess over the wanted tuples: the tuples of a key are not known in advance


class HashedSample(NamedTuple):
    """Codes of all tuples of the chosen keys, in their order; a hash chooses each key with probability ``rate``.

    A cache of n * rate rows over these tuples has the hit rate of a cache of n rows over all tuples (SHARDS:
    C. Waldspurger, N. Park, A. Garthwaite & I. Ahmad, FAST 2015; for any policy, C. Waldspurger, T. Saemundsson,
    I. Ahmad & N. Park, USENIX ATC 2017). Chance decides if a very hot key is chosen. The difference between the actual
    number of tuples and the ``expected`` one comes from such keys, and these are always in the cache.
    """

    codes: Int64s
    rate: float
    warming: int  # leading codes that only warm up the cache
    expected: float  # expected number of codes after them

    @classmethod
    def of(cls, codes: Int64s, *, warming: int, most_tuples: int) -> Self:
        """Choose about ``most_tuples`` of ``codes``, at most twice as many; the first ``warming`` only warm up."""
        rate = min(most_tuples / codes.size, 1.0)
        if rate == 1:
            return cls(codes, rate, warming, codes.size - warming)
        while (chosen := count_chosen(codes, _below(rate))) > _SLACK * most_tuples:
            rate /= 2
        out = np.empty(chosen, np.int64)
        choose_by_hash(codes, _below(rate), out)
        return cls(out, rate, count_chosen(codes[:warming], _below(rate)), rate * (codes.size - warming))


def _below(rate: float) -> np.uint64:
    return np.uint64(int(rate * 2**64))


_MOST_TUPLES = 1 << 20


Policy = Literal["lru", "lfu"]


@dataclass(frozen=True, eq=False)
class MissRatioCurve:
    """Hit rates by the number of cached rows, for keys with one row each.

    A cache of ``cached_rows[i]`` rows has the hit rate ``hit_rates[i]``; `hit_rate` interpolates between these points.

    >>> stream = np.array([1, 2, 1, 3, 1, 2] * 50)
    >>> MissRatioCurve.of_sample(stream, policy="lru").hit_rate([0, 1, 2, 3]).round(2).tolist()
    [0.0, 0.0, 0.67, 1.0]
    >>> MissRatioCurve.of_sample(stream, policy="lfu").hit_rate([0, 1, 2, 3]).round(2).tolist()
    [0.0, 0.5, 0.83, 1.0]
    """

    cached_rows: Floats
    hit_rates: Floats

    @classmethod
    def of_sample(cls, codes: Int64s, *, policy: Policy, warm_up: float = 0.5, most_tuples: int = _MOST_TUPLES) -> Self:
        """Compute the curve from the key codes of a stretch of the stream, in their order, with caches empty at first.

        The first occurrence of a key misses in any cache, though a cache that has run for long might hold the key. The
        first share ``warm_up`` of the sample therefore only fills the caches, and hits are counted after it. A sample
        should have about ten tuples per row of the largest cache of interest.

        "lru" keeps the most recent keys; "lfu" keeps the most frequent keys since the start of the sample and, on ties,
        the most recent. Both are exact for all sizes at once, by stack distances (Mattson et al. 1970). A sample of
        more than ``most_tuples`` is reduced to the tuples of some keys (`HashedSample`); the curve is then unreliable
        for caches that hold fewer than about 64 of these keys.
        """
        if codes.size == 0 or not 0 <= warm_up < 1:
            raise InvalidArgument(
                f"there are {codes.size} codes, and warm_up is {warm_up}; give at least 1 code, and 0 <= warm_up < 1."
            )
        if policy not in ("lru", "lfu"):
            raise InvalidArgument(f"policy is {policy!r}; give 'lru' or 'lfu'.")
        sample = HashedSample.of(codes, warming=int(warm_up * codes.size), most_tuples=most_tuples)
        keys, key = np.unique(sample.codes, return_inverse=True)
        number = key.astype(np.int32)
        rows, hits = _stacked(number, keys.size, sample, policy)
        hits[1:] += sample.expected - (sample.codes.size - sample.warming)
        return cls(rows / sample.rate, (hits / sample.expected).clip(0, 1))

    def hit_rate(self, cached_rows: npt.ArrayLike) -> Floats:
        """Return the hit rate of a cache for each number of rows."""
        return np.asarray(np.interp(np.asarray(cached_rows, np.float64), self.cached_rows, self.hit_rates))


def _stacked(key: Int32s, num_keys: int, sample: HashedSample, policy: Policy) -> tuple[Floats, Floats]:
    """Return the hits of caches of 0, 1, 2, ... keys."""
    previous, occurrence = np.empty(key.size, np.int64), np.empty(key.size, np.int32)
    link_references(key, num_keys, previous, occurrence)
    place = np.arange(key.size)
    if policy == "lfu":
        place[np.argsort(occurrence, kind="stable")] = np.arange(key.size)
    distance = np.empty(key.size, np.int64)
    stack_distances(previous, place, distance)
    answered = np.bincount(distance[sample.warming :], minlength=num_keys + 1).astype(np.float64)
    answered[0] = 0  # first occurrences: misses in any cache
    return np.arange(answered.size, dtype=np.float64), np.cumsum(answered)
