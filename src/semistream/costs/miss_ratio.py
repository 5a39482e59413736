"""MissRatioCurve: what caches of all sizes would answer, from a sample of the stream as it came.

HashedSample: all tuples of some keys, of a sample of a stream that is too long to look at them all.
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
    simulate_front_cache,
    stack_distances,
)
from semistream.errors import InvalidArgument, require_numbers
from semistream.kernels.array_types import Int32s, Int64s

_SLACK = 2  # times as many as wanted that are taken: how many tuples a key has is not known before


class HashedSample(NamedTuple):
    """Codes of the tuples whose keys were chosen, in their order, each key with P = ``rate`` by a hash of it.

    In a cache of n rows that all tuples go to, so many keys are held for each chosen one as there are for each row of a
    cache of n * rate that only those go to: what the small cache does, the large one does (SHARDS: C. Waldspurger,
    N. Park, A. Garthwaite & I. Ahmad, FAST 2015; for any policy, C. Waldspurger, T. Saemundsson, I. Ahmad & N. Park,
    USENIX ATC 2017). Whether a very hot key is among them is chance: ``expected`` is how many tuples there would be
    without it. What there are more or fewer asks for very hot keys, and a cache has these.
    """

    codes: Int64s
    rate: float
    warming: int  # of these codes come first, and nothing is counted of them
    expected: float  # of the codes after them

    @classmethod
    def of(cls, codes: Int64s, *, warming: int, most_tuples: int) -> Self:
        """At most about ``most_tuples`` of them, of which the first ``warming`` only warm a cache up."""
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


Floats = npt.NDArray[np.float64]

_MOST_TUPLES = 1 << 20
_SIZES = 24  # that a policy is simulated at if one pass over the sample does not tell them all
_LEAST_KEYS = 4  # of a cache that is simulated
_PIECE_ROWS = 1 << 12  # that a front stage looks up at once, if it is large; counts are not halved more often


@dataclass(frozen=True)
class FrontPolicy:
    """What the cache of a front stage keeps: the keys asked for most of late, as far as it knows.

    It counts hits as they come. Of the keys that it misses it learns when the join behind it reads their pages, which
    all come by while ``pass_rows`` missed tuples come; and counts are halved when ``waiting_rows`` of these, as many as
    wait there on average, have met their pages, or later in a large cache. So while the hot keys stay what they are, it
    is nearly LFU, which it falls behind by what it forgets; after they change, it answers little for a pass, which
    neither LFU nor LRU tells.

    In a sweep, where tuples go when they have met their pages, as many wait as come in half a pass, with those that
    are on their way in: ``pass_rows`` is twice as many. In MESHJOIN, where they stay for a pass, all that come in it.
    Hit rates are those of a stage that runs to 3 points. They are too high by a little more where a pass has fewer
    tuples than the cache has rows; and if all hot keys change at once, not much more seldom than R is passed, it
    depends on where in R the join is then.
    """

    pass_rows: float
    waiting_rows: float

    def __post_init__(self) -> None:
        require_numbers(self, "pass_rows", "waiting_rows")


Policy = Literal["lru", "lfu"] | FrontPolicy


@dataclass(frozen=True, eq=False)
class MissRatioCurve:
    """Hit rates by the number of cached rows, for keys with one row each.

    ``hit_rates[i]`` is that of a cache of ``cached_rows[i]``; `hit_rate` is between these for others.

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
        """From the key codes of a stretch of the stream, in their order, with caches that are empty at first.

        A key that comes for the first time is missed whatever the size, though a cache that had been there for long
        might have it. So the first part of the sample, ``warm_up``, only fills the caches, and the rest is counted: a
        sample should have some ten tuples for each row of the largest cache of interest, and with a `FrontPolicy` some
        passes of the join.

        "lru" keeps the keys asked for last, "lfu" those asked for most often since the sample began, of equals those
        asked for last; both are exact for all sizes at once, by stack distances (Mattson et al. 1970). A `FrontPolicy`
        is simulated at some sizes. Of samples of more than ``most_tuples``, those of some keys are looked at
        (`HashedSample`), which tells little of caches that would have fewer than some 64 of these.
        """
        if codes.size == 0 or not 0 <= warm_up < 1:
            raise InvalidArgument(
                f"there are {codes.size} codes, and warm_up is {warm_up}; give 1 or more, and a share below 1."
            )
        sample = HashedSample.of(codes, warming=int(warm_up * codes.size), most_tuples=most_tuples)
        keys, key = np.unique(sample.codes, return_inverse=True)
        number = key.astype(np.int32)
        if isinstance(policy, FrontPolicy):
            rows, hits = _simulated(number, keys.size, sample, policy)
        elif policy in ("lru", "lfu"):
            rows, hits = _stacked(number, keys.size, sample, policy)
        else:
            raise InvalidArgument(f"policy is {policy!r}; give 'lru', 'lfu' or a FrontPolicy.")
        hits[1:] += sample.expected - (sample.codes.size - sample.warming)
        return cls(rows / sample.rate, (hits / sample.expected).clip(0, 1))

    def hit_rate(self, cached_rows: npt.ArrayLike) -> Floats:
        """The share of the stream that caches of so many rows answer."""
        return np.asarray(np.interp(np.asarray(cached_rows, np.float64), self.cached_rows, self.hit_rates))


def _stacked(key: Int32s, num_keys: int, sample: HashedSample, policy: Literal["lru", "lfu"]) -> tuple[Floats, Floats]:
    """Hits of caches of 0, 1, 2, ... keys."""
    previous, occurrence = np.empty(key.size, np.int64), np.empty(key.size, np.int32)
    link_references(key, num_keys, previous, occurrence)
    place = np.arange(key.size)
    if policy == "lfu":
        place[np.argsort(occurrence, kind="stable")] = np.arange(key.size)
    distance = np.empty(key.size, np.int64)
    stack_distances(previous, place, distance)
    answered = np.bincount(distance[sample.warming :], minlength=num_keys + 1).astype(np.float64)
    answered[0] = 0  # those that came for the first time
    return np.arange(answered.size, dtype=np.float64), np.cumsum(answered)


def _simulated(key: Int32s, num_keys: int, sample: HashedSample, policy: FrontPolicy) -> tuple[Floats, Floats]:
    """Hits of caches of some sizes up to that of all keys."""
    pass_rows, waiting_rows = (max(round(rows * sample.rate), 1) for rows in (policy.pass_rows, policy.waiting_rows))
    page = np.arange(num_keys) * pass_rows // num_keys  # R is in the order of its codes
    sizes = np.unique(np.geomspace(min(_LEAST_KEYS, num_keys), num_keys, _SIZES).astype(np.int64))
    piece_rows = max(round(_PIECE_ROWS * sample.rate), 1)
    hits = [
        simulate_front_cache(
            key, page, size, pass_rows, waiting_rows, 2 * min(size, piece_rows), counted_from=sample.warming
        )
        for size in sizes.tolist()
    ]
    return np.append(0.0, sizes), np.append(0.0, np.array(hits, np.float64))
