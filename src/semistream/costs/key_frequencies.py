"""KeyFrequencies: how often a stream asks for the keys of R, in few numbers, for the cost models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from semistream.datasets.zipf import MAX_EXPONENT, harmonic
from semistream.errors import InvalidArgument

Floats = npt.NDArray[np.float64]

_SINGLE = 1024  # keys that are groups of their own
_GROWTH = 1.02  # of groups behind them: within one, Zipf's frequencies differ by less than this to the exponent


@dataclass(frozen=True, eq=False)
class KeyFrequencies:
    """Groups of keys, hottest first: ``keys[i]`` of them are asked for with ``probability[i]`` each.

    All that a cost model asks of a distribution follows from these: what a cache of the hottest keys answers, how many
    different keys come in so many tuples, and how many pages of R they lie in. A group of probability 0 is keys of R
    that nobody asks for. Where keys lie is taken to have nothing to do with how often they are asked for.

    >>> uniform = KeyFrequencies.uniform(1000)
    >>> round(uniform.share(100), 3), round(uniform.distinct(1000))
    (0.1, 632)
    >>> round(KeyFrequencies.zipf(1.0, 10**9).share(10**7), 2)
    0.78
    """

    keys: Floats
    probability: Floats

    def __post_init__(self) -> None:
        if self.keys.shape != self.probability.shape or self.keys.ndim != 1:
            raise InvalidArgument(
                f"keys has the shape {self.keys.shape} and probability {self.probability.shape}; give one of each."
            )
        if not (np.all(self.keys >= 0) and np.all(self.probability >= 0) and self.num_keys >= 1):
            raise InvalidArgument("keys or probability has a number below 0, or there is no key; give counts from 0.")
        total = float(self.keys @ self.probability)
        if not math.isclose(total, 1.0, rel_tol=1e-6):
            raise InvalidArgument(f"the probabilities add up to {total}; they must add up to 1.")
        if np.any(np.diff(self.probability) > 0):
            raise InvalidArgument("the groups are not in the order of their probability; give the hottest first.")

    @classmethod
    def uniform(cls, keys: int) -> Self:
        """All keys alike."""
        return cls.zipf(0.0, keys)

    @classmethod
    def zipf(cls, exponent: float, keys: int) -> Self:
        """The k-th hottest of ``keys`` has P ~ k**-exponent: FRONT (1) has exponent 1.

        The hottest keys stand for themselves, others in groups that grow, so that a billion takes no more than a
        thousand numbers. The sum over a group is exact.
        """
        if not 0 <= exponent <= MAX_EXPONENT:
            raise InvalidArgument(f"exponent is {exponent!r}; give a number from 0 (uniform) to {MAX_EXPONENT}.")
        if not keys >= 1:
            raise InvalidArgument(f"keys is {keys!r}; a distribution needs at least 1.")
        if exponent == 0:
            return cls(np.array([float(keys)]), np.array([1 / keys]))
        single = np.arange(1, min(keys, _SINGLE) + 1, dtype=np.float64) ** -exponent
        ends = [single.size]
        while ends[-1] < keys:
            ends.append(min(max(int(ends[-1] * _GROWTH), ends[-1] + 1), keys))
        sums = np.diff([harmonic(end, exponent) for end in ends])
        counts = np.concatenate([np.ones(single.size), np.diff(np.array(ends, np.float64))])
        # The sums of harmonic() are rounded: a group must not come out hotter than the one before it.
        weights = np.concatenate([single, sums / counts[single.size :]])
        return cls._of_weights(counts, np.minimum.accumulate(weights))

    @classmethod
    def counted(cls, counts: npt.ArrayLike, unseen: int = 0) -> Self:
        """Of counts of keys, such as those of a sample, and how many more keys R has that did not come."""
        values, numbers = np.unique(np.asarray(counts, np.float64), return_counts=True)
        values, keys = values[::-1], numbers[::-1].astype(np.float64)
        if not values.size or values[-1] < 0 or values[0] <= 0:
            raise InvalidArgument("there is no count above 0; give how often each key came.")
        if unseen:
            values, keys = np.append(values, 0.0), np.append(keys, float(unseen))
        return cls._of_weights(keys, values)

    @property
    def num_keys(self) -> float:
        """How many keys there are."""
        return float(self.keys.sum())

    @property
    def asked_keys(self) -> float:
        """How many of them are ever asked for."""
        return float(self.keys[self.probability > 0].sum())

    def share(self, hottest: float) -> float:
        """P(a tuple asks for one of so many hottest keys): p_N(h_R) of FRONT (1), the hit rate of a perfect cache."""
        return min(float(np.interp(hottest, self._keys_upto, self._share_upto)), 1.0)

    def rest(self, hottest: float) -> Self:
        """What is asked of all others if so many of the hottest keys are answered by a cache; at least one is left.

        Those in the cache are still keys of R, which nobody asks for any more.
        """
        left = np.minimum(np.maximum(self._keys_upto[1:] - hottest, 0.0), self.keys)
        some = left > 0
        if left.sum() < 1 or not (left @ self.probability) > 0:
            return type(self)(np.array([1.0]), np.array([1.0]))
        answered = self.num_keys - float(left.sum())
        keys, weights = left[some], self.probability[some]
        if answered > 0:
            keys, weights = np.append(keys, answered), np.append(weights, 0.0)
        return self._of_weights(keys, weights)

    def distinct(self, tuples: float) -> float:
        """How many different keys so many tuples are expected to ask for."""
        return float(self.keys @ self._asked(tuples))

    def pages(self, num_pages: int, tuples: float) -> float:
        """In how many of R's pages the keys of so many tuples are expected to lie.

        A page has K / P of R's K keys, any of them. Each is asked for with probability D / K, where D different ones
        are, so that none is with ``(1 - D / K) ** (K / P)``. Keys with rows in several pages need all of these.
        """
        if num_pages <= 1:
            return float(num_pages) * float(tuples > 0)
        asked = min(self.distinct(tuples) / self.num_keys, 1.0)
        if asked == 1.0:
            return float(num_pages)
        return float(-num_pages * np.expm1(max(self.num_keys / num_pages, 1.0) * np.log1p(-asked)))

    def in_pages(self, num_pages: float) -> Self:
        """How often pages of R are asked for, if it has so many, each with equally many keys that lie anywhere.

        A hot key makes its page hot, all other keys lie anywhere: a page has the frequency of its hottest key, and as
        much of the rest as any other.
        """
        count = max(num_pages, 1.0)
        hot = np.minimum(np.cumsum(self.keys), count)
        pages = np.diff(hot, prepend=0.0)
        rest = max(1.0 - float(pages @ self.probability), 0.0)
        pages, share = np.append(pages, count - hot[-1]), np.append(self.probability, 0.0) + rest / count
        return self._of_weights(pages[pages > 0], share[pages > 0])

    def _asked(self, tuples: float) -> Floats:
        """P(a key is asked for by one of so many tuples)."""
        with np.errstate(divide="ignore"):
            asked: Floats = -np.expm1(tuples * np.log1p(-np.minimum(self.probability, 1.0)))
        return asked

    @cached_property
    def _keys_upto(self) -> Floats:
        return _from_zero(self.keys)

    @cached_property
    def _share_upto(self) -> Floats:
        return _from_zero(self.keys * self.probability)

    @classmethod
    def _of_weights(cls, keys: Floats, weights: Floats) -> Self:
        return cls(keys, weights / float(keys @ weights))


def _from_zero(values: npt.NDArray[Any]) -> Floats:
    return np.concatenate([np.zeros(1), np.cumsum(values, dtype=np.float64)])
