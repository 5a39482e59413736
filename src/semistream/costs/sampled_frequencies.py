"""Estimate KeyFrequencies from a sample: count the hottest keys, and fit a distribution to the tail of all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from semistream.costs.kernels import count_runs, expected_fingerprint, hot_share, often_counted, power_law_exponent
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Floats, Int64s

FIT_BYTES = 16 << 10  # memory of a fit: a few numbers for each of some 130 groups of keys, and fingerprints
TIMES = 128  # occurrences of a key that a fingerprint tells apart; its last entry has all above
_BINS = np.array([0, 1, 2, 3, 4, 6, 9, 14, 22, 34, 52, 79])  # first entries of the bins in which fits are compared
_SINGLE = 32  # ranks with a group each
_GROWTH = 1.2  # last rank of a later group, over that of the previous one
_STEEPEST = 16.0  # exponent from which on almost every tuple has the same key
_SIZES = 12  # sizes tried first, and again between the neighbours of the best one
_HALVINGS = 20
_BETTER = 6.0  # gain in log-likelihood required of one more parameter: chance alone reaches it in 1 case of 1900


class Groups(NamedTuple):
    """Groups of keys, hottest first: their sizes and the probability of each key, which sum up to 1 over all keys."""

    keys: Floats
    probability: Floats


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Occurrence counts in a sample of ``tuples``: ``keys[i]`` keys occur i + 1 times; the last entry has all above."""

    keys: Int64s
    tuples: int

    @classmethod
    def of(cls, ordered: Int64s, *, without: Int64s) -> Self:
        """Count the ascending codes ``ordered``, excluding the ascending keys ``without``."""
        keys = np.zeros(TIMES, np.int64)
        return cls(keys, count_runs(ordered, without, keys))

    @cached_property
    def distinct(self) -> int:
        """Number of distinct keys."""
        return int(self.keys.sum())


@dataclass(frozen=True)
class TailFit:
    """Fit of a distribution to a ``sample`` without the ``behind`` hottest keys.

    The tail has at most ``most_keys`` keys. Four distributions are tried, each matched to the sample's number of
    distinct keys:

    - a power law over all keys, P ~ rank**-a, with ranks after the hottest keys: Zipf's law, or uniform for a = 0;
    - fewer keys, all equally frequent: only a part of R ever occurs;
    - a power law over fewer keys;
    - two levels: some keys equally hot, all others equally cold.

    The first two have one parameter, and the likelier of them is used, unless a distribution with two parameters
    explains the occurrence counts clearly better. A sample has no information on keys too rare to occur in it: their
    frequencies are extrapolated from the distribution.
    """

    sample: Fingerprint
    behind: int
    most_keys: int

    def groups(self) -> Groups:
        """Return the distribution that fits best."""
        most = max(self.most_keys, self.sample.distinct)
        if self._expected(_level(most)) <= self.sample.distinct:
            return _level(most)
        least = self._alike_keys(most)  # with fewer, the sample could not have this many distinct keys
        simple = max([self._power_law(most), _level(least)], key=self._log_likelihood)
        better = max(
            self._best(self._power_law, least, most),
            self._best(lambda hot: self._two_levels(hot, most), 1, least),
            key=self._log_likelihood,
        )
        return better if self._log_likelihood(better) > self._log_likelihood(simple) + _BETTER else simple

    def _best(self, fit: Callable[[int], Groups], least: int, most: int) -> Groups:
        """Return the likeliest fit with a size from least to most, assuming that the likelihood has one maximum."""
        low, high = math.log(least), math.log(most)
        best, likelihood = fit(most), -math.inf
        for _ in range(2):
            sizes = np.unique(np.exp(np.linspace(low, high, _SIZES)).astype(np.int64).clip(least, most))
            likelihoods = []
            for size in sizes.tolist():
                groups = fit(size)
                likelihoods.append(self._log_likelihood(groups))
                if likelihoods[-1] > likelihood:
                    best, likelihood = groups, likelihoods[-1]
            at = int(np.argmax(likelihoods))
            low, high = (math.log(sizes[i]) for i in (max(at - 1, 0), min(at + 1, sizes.size - 1)))
        return best

    def _power_law(self, keys: int) -> Groups:
        """Fit a power law over ``keys`` keys to the number of distinct keys: the steeper, the fewer."""
        numbers, rank = self._ranks(keys)
        log_rank, sample = np.log(rank / rank[0]), self.sample
        exponent = power_law_exponent(numbers, log_rank, sample.tuples, sample.distinct, _STEEPEST, _HALVINGS)
        weight = np.exp(-exponent * log_rank)
        return Groups(numbers, weight / float(numbers @ weight))

    def _ranks(self, keys: int) -> tuple[Floats, Floats]:
        """Group ``keys`` ranks from ``behind`` + 1 on; return the size and a middle rank of each group."""
        last, ends = self.behind + keys, self._group_ends
        upto = np.concatenate([[self.behind], ends[: np.searchsorted(ends, last)], [last]]).astype(np.float64)
        return np.diff(upto), np.sqrt((upto[:-1] + 1) * upto[1:])

    @cached_property
    def _group_ends(self) -> Int64s:
        """Last rank of each group, for the largest possible number of keys."""
        last = self.behind + max(self.most_keys, self.sample.distinct)
        ends = [*range(self.behind + 1, self.behind + _SINGLE + 1)]
        while ends[-1] < last:
            ends.append(max(int(ends[-1] * _GROWTH), ends[-1] + 1))
        return np.array(ends, np.int64)

    def _two_levels(self, hot: int, keys: int) -> Groups:
        """Fit two levels with ``hot`` hot keys to the number of distinct keys: the larger their share, the fewer."""
        if hot >= keys:
            return _level(keys)
        share = hot_share(hot, keys - hot, self.sample.tuples, self.sample.distinct, _HALVINGS)
        return Groups(np.array([hot, keys - hot], np.float64), np.array([share / hot, (1 - share) / (keys - hot)]))

    def _alike_keys(self, most: int) -> int:
        """Return the smallest number of equally frequent keys that gives the number of distinct keys."""
        log_keys = _bisect(
            lambda log_keys: self._expected(_level(math.exp(log_keys))) < self.sample.distinct, 0.0, math.log(most)
        )
        return min(max(math.ceil(math.exp(log_keys)), 1), most)

    def _expected(self, groups: Groups) -> float:
        """Return the expected number of distinct keys."""
        return float(groups.keys @ -np.expm1(-self.sample.tuples * groups.probability))

    def _log_likelihood(self, groups: Groups) -> float:
        """Return the log-likelihood of the occurrence counts, given the number of distinct keys."""
        out = np.empty(TIMES)
        distinct = expected_fingerprint(groups.keys, self.sample.tuples * groups.probability, out)
        expected = np.maximum(np.add.reduceat(out, _BINS) / distinct, 1e-30)
        return float(np.add.reduceat(self.sample.keys, _BINS) @ np.log(expected))


def _level(keys: float) -> Groups:
    return Groups(np.array([float(keys)]), np.array([1 / keys]))


def _bisect(before: Callable[[float], bool], low: float, high: float) -> float:
    """Return the point at which ``before`` changes from true to false."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if before(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


COUNTED = 100  # occurrences from which a key stands for itself: its frequency is then known to a tenth


def frequencies_of_sample(codes: Int64s, num_keys: int) -> KeyFrequencies:
    """Estimate the frequencies of R's ``num_keys`` keys in a stream, from a sample of its key codes in any order.

    Keys with a hundred occurrences or more are counted, the others fitted (`TailFit`). The share of the hottest keys,
    and the distinct keys in ten times as many tuples, are accurate to a few percentage points. The frequencies of keys
    too rare for the sample are not known: those with P well below 1 / s, in a sample of s tuples.

    >>> from semistream.datasets import Zipf
    >>> found = frequencies_of_sample(Zipf(1.0, 10**6, seed=3).keys(20_000), 10**6)
    >>> exact = KeyFrequencies.zipf(1.0, 10**6)
    >>> abs(found.share(1000) - exact.share(1000)) < 0.03
    True
    """
    if codes.size == 0:
        raise InvalidArgument("the sample is empty; give the key codes of at least one tuple.")
    ordered = np.sort(codes)
    hottest, counts = (np.empty(codes.size // COUNTED, np.int64) for _ in range(2))
    found = often_counted(ordered, COUNTED, hottest, counts)
    tail = Fingerprint.of(ordered, without=hottest[:found])
    return frequencies_of_parts(counts[:found] / codes.size, tail, num_keys)


def frequencies_of_parts(hottest: npt.NDArray[np.float64], tail: Fingerprint, num_keys: int) -> KeyFrequencies:
    """Combine the shares of the ``hottest`` keys in the stream with a fit of a sample of all other keys."""
    if num_keys < 1:
        raise InvalidArgument(f"num_keys is {num_keys}; give the number of R's keys, at least 1.")
    left = max(1 - float(hottest.sum()), 0.0) if tail.tuples else 0.0
    keys, probability = np.ones(hottest.size), hottest
    if left > 0:
        groups = TailFit(tail, behind=hottest.size, most_keys=num_keys - hottest.size).groups()
        keys = np.concatenate([keys, groups.keys])
        probability = np.concatenate([probability, left * groups.probability])
    unasked = num_keys - float(keys.sum())
    if unasked >= 1:
        keys, probability = np.append(keys, unasked), np.append(probability, 0.0)
    order = np.argsort(-probability, kind="stable")
    keys, probability = keys[order], probability[order]
    return KeyFrequencies(keys, probability / float(keys @ probability))
