"""KeyFrequencies: a compact distribution of the keys of R in a stream, for the cost models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from semistream.datasets.zipf import MAX_EXPONENT, harmonic
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Floats

_SINGLE = 1024  # hottest keys with a group each
_GROWTH = 1.02  # of the groups behind them: within one, Zipf weights differ by less than _GROWTH ** exponent


@dataclass(frozen=True, eq=False)
class KeyFrequencies:
    """Groups of keys, hottest first: group i has ``keys[i]`` keys, each with probability ``probability[i]``.

    The cost models derive three things from it: the hit rate of a cache of the hottest keys, the number of distinct
    keys in a number of tuples, and the number of R's pages that hold them. A group of probability 0 stands for keys of
    R that never occur in the stream. The place of a key in R is assumed to be independent of its frequency.

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
                f"keys has shape {self.keys.shape}, probability {self.probability.shape}; give equally long 1-D arrays."
            )
        if not (np.all(self.keys >= 0) and np.all(self.probability >= 0) and self.num_keys >= 1):
            raise InvalidArgument("keys is empty, or keys or probability has a number below 0; give 1 or more keys.")
        total = float(self.keys @ self.probability)
        if not math.isclose(total, 1.0, rel_tol=1e-6):
            raise InvalidArgument(f"the probabilities add up to {total}; they must add up to 1.")
        if np.any(np.diff(self.probability) > 0):
            raise InvalidArgument("the groups are not sorted by probability; give the hottest first.")

    @classmethod
    def uniform(cls, keys: int) -> Self:
        """Return equal frequencies for ``keys`` keys."""
        return cls.zipf(0.0, keys)

    @classmethod
    def zipf(cls, exponent: float, keys: int) -> Self:
        """Return Zipf's law: the k-th hottest of ``keys`` has P ~ k**-exponent. FRONT (1) has exponent 1.

        The hottest keys have a group each, the others share groups of growing size, so a billion keys take fewer than
        two thousand groups. The sum over a group is exact.
        """
        if not 0 <= exponent <= MAX_EXPONENT:
            raise InvalidArgument(f"exponent is {exponent!r}; give a number from 0 (uniform) to {MAX_EXPONENT}.")
        if not keys >= 1:
            raise InvalidArgument(f"keys is {keys!r}; give at least 1.")
        if exponent == 0:
            return cls(np.array([float(keys)]), np.array([1 / keys]))
        single = np.arange(1, min(keys, _SINGLE) + 1, dtype=np.float64) ** -exponent
        ends = [single.size]
        while ends[-1] < keys:
            ends.append(min(max(int(ends[-1] * _GROWTH), ends[-1] + 1), keys))
        sums = np.diff([harmonic(end, exponent) for end in ends])
        counts = np.concatenate([np.ones(single.size), np.diff(np.array(ends, np.float64))])
        # harmonic() rounds its sums; keep a group from being hotter than the previous one.
        weights = np.concatenate([single, sums / counts[single.size :]])
        return cls._of_weights(counts, np.minimum.accumulate(weights))

    @classmethod
    def counted(cls, counts: npt.ArrayLike, unseen: int = 0) -> Self:
        """Return frequencies in proportion to ``counts`` of keys, with ``unseen`` more keys of probability 0."""
        values, numbers = np.unique(np.asarray(counts, np.float64), return_counts=True)
        values, keys = values[::-1], numbers[::-1].astype(np.float64)
        if not values.size or values[-1] < 0 or values[0] <= 0:
            raise InvalidArgument("a count is below 0, or no count is above 0; give the occurrences of each key.")
        if unseen:
            values, keys = np.append(values, 0.0), np.append(keys, float(unseen))
        return cls._of_weights(keys, values)

    @property
    def num_keys(self) -> float:
        """Number of keys of R."""
        return float(self.keys.sum())

    @property
    def asked_keys(self) -> float:
        """Number of keys with a probability above 0."""
        return float(self.keys[self.probability > 0].sum())

    def share(self, hottest: float) -> float:
        """Return P(a tuple has one of the ``hottest`` keys): p_N(h_R) of FRONT (1), the hit rate of a perfect cache."""
        return min(float(np.interp(hottest, self._keys_upto, self._share_upto)), 1.0)

    def rest(self, hottest: float) -> Self:
        """Return the frequencies behind a cache that answers the ``hottest`` keys; at least one key is left.

        Cached keys remain keys of R, with probability 0.
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
        """Return the expected number of distinct keys in ``tuples`` tuples."""
        return float(self.keys @ self._asked(tuples))

    def pages(self, num_pages: int, tuples: float) -> float:
        """Return the expected number of R's pages that hold the keys of ``tuples`` tuples.

        A page has K / P random keys of R's K keys. With D distinct keys in the tuples, each key is wanted with
        probability D / K, and a page holds no wanted key with probability ``(1 - D / K) ** (K / P)``. A key with rows
        in several pages needs all of them.
        """
        if num_pages <= 1:
            return float(num_pages) * float(tuples > 0)
        asked = min(self.distinct(tuples) / self.num_keys, 1.0)
        if asked == 1.0:
            return float(num_pages)
        return float(-num_pages * np.expm1(max(self.num_keys / num_pages, 1.0) * np.log1p(-asked)))

    def in_pages(self, num_pages: float) -> Self:
        """Return the frequencies of R's pages, if each of ``num_pages`` has equally many random keys.

        A page has the frequency of its hottest key plus an equal share of all remaining keys.
        """
        count = max(num_pages, 1.0)
        hot = np.minimum(np.cumsum(self.keys), count)
        pages = np.diff(hot, prepend=0.0)
        rest = max(1.0 - float(pages @ self.probability), 0.0)
        pages, share = np.append(pages, count - hot[-1]), np.append(self.probability, 0.0) + rest / count
        return self._of_weights(pages[pages > 0], share[pages > 0])

    def _asked(self, tuples: float) -> Floats:
        """Return P(a key occurs in ``tuples`` tuples) for each group."""
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
