"""KeyFrequencies of a sample: the hottest keys as they were counted, all others by the law that fits them.

The keys behind the hottest: which distribution of them makes a sample look as it does.
"""

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
from semistream.kernels.array_types import Int64s

Floats = npt.NDArray[np.float64]

FIT_BYTES = 16 << 10  # what a fit takes: some numbers for each of some 130 groups of keys, and fingerprints
TIMES = 128  # how often a key of the tail may come, or more, as far as a fingerprint tells it
_BINS = np.array([0, 1, 2, 3, 4, 6, 9, 14, 22, 34, 52, 79])  # of these, taken together when fits are compared
_SINGLE = 32  # ranks that are groups of their own
_GROWTH = 1.2  # of groups behind them
_STEEPEST = 16.0  # exponent, from where on all but one key are hardly asked for
_SIZES = 12  # tried at first; and as many between those next to the best
_HALVINGS = 20
_BETTER = 3.0  # log-likelihood that one more parameter must gain: chance does with 1 in 70


class Groups(NamedTuple):
    """So many keys with so much probability each, hottest first; all together have 1."""

    keys: Floats
    probability: Floats


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """What a sample of so many ``tuples`` looks like: ``keys[i]`` keys came i + 1 times, the last so often or more."""

    keys: Int64s
    tuples: int

    @classmethod
    def of(cls, ordered: Int64s, *, without: Int64s) -> Self:
        """Of codes that ascend, but for some keys, which ascend too."""
        keys = np.zeros(TIMES, np.int64)
        return cls(keys, count_runs(ordered, without, keys))

    @cached_property
    def distinct(self) -> int:
        """How many different keys there are."""
        return int(self.keys.sum())


@dataclass(frozen=True)
class TailFit:
    """Fits distributions to a sample in which nothing asks for one of the ``behind`` hottest keys.

    At most ``most_keys`` can be asked for. Four distributions are tried, each with as many different keys in as many
    tuples as there were:

    - a power law over all keys, P ~ rank**-a, with the ranks behind the hottest: Zipf's, or uniform with a = 0;
    - fewer keys, all alike, where only a part of R is ever asked for;
    - a power law over fewer keys;
    - two levels: some keys that are alike hot, all others alike cold.

    The first two have one parameter, and the more likely one is taken unless another, with two, makes it clearly more
    likely that keys came as often as they did. A sample says nothing of keys that are too rare for it: how these differ
    among themselves is what the distribution makes of it.
    """

    sample: Fingerprint
    behind: int
    most_keys: int

    def groups(self) -> Groups:
        """The distribution that fits."""
        most = max(self.most_keys, self.sample.distinct)
        if self._expected(_level(most)) <= self.sample.distinct:
            return _level(most)
        least = self._alike_keys(most)  # with fewer, there cannot be so many different ones
        simple = max([self._power_law(most), _level(least)], key=self._log_likelihood)
        better = max(
            self._best(self._power_law, least, most),
            self._best(lambda hot: self._two_levels(hot, most), 1, least),
            key=self._log_likelihood,
        )
        return better if self._log_likelihood(better) > self._log_likelihood(simple) + _BETTER else simple

    def _best(self, fit: Callable[[int], Groups], least: int, most: int) -> Groups:
        """The most likely fit with a size from least to most: the likelihood is taken to have one maximum."""
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
        """That over so many keys with as many different ones: the steeper, the fewer."""
        numbers, rank = self._ranks(keys)
        log_rank, sample = np.log(rank / rank[0]), self.sample
        exponent = power_law_exponent(numbers, log_rank, sample.tuples, sample.distinct, _STEEPEST, _HALVINGS)
        weight = np.exp(-exponent * log_rank)
        return Groups(numbers, weight / float(numbers @ weight))

    def _ranks(self, keys: int) -> tuple[Floats, Floats]:
        """Groups of so many ranks from ``behind`` + 1 on: how many, and one in the middle."""
        last, ends = self.behind + keys, self._group_ends
        upto = np.concatenate([[self.behind], ends[: np.searchsorted(ends, last)], [last]]).astype(np.float64)
        return np.diff(upto), np.sqrt((upto[:-1] + 1) * upto[1:])

    @cached_property
    def _group_ends(self) -> Int64s:
        """The last rank of each group, of all that there can be."""
        last = self.behind + max(self.most_keys, self.sample.distinct)
        ends = [*range(self.behind + 1, self.behind + _SINGLE + 1)]
        while ends[-1] < last:
            ends.append(max(int(ends[-1] * _GROWTH), ends[-1] + 1))
        return np.array(ends, np.int64)

    def _two_levels(self, hot: int, keys: int) -> Groups:
        """So many hot keys among all keys: the more of the stream they have, the fewer different ones come."""
        if hot >= keys:
            return _level(keys)
        share = hot_share(hot, keys - hot, self.sample.tuples, self.sample.distinct, _HALVINGS)
        return Groups(np.array([hot, keys - hot], np.float64), np.array([share / hot, (1 - share) / (keys - hot)]))

    def _alike_keys(self, most: int) -> int:
        """The least number of keys, all alike, that has as many different ones."""
        log_keys = _bisect(
            lambda log_keys: self._expected(_level(math.exp(log_keys))) < self.sample.distinct, 0.0, math.log(most)
        )
        return min(max(math.ceil(math.exp(log_keys)), 1), most)

    def _expected(self, groups: Groups) -> float:
        """How many different keys are expected."""
        return float(groups.keys @ -np.expm1(-self.sample.tuples * groups.probability))

    def _log_likelihood(self, groups: Groups) -> float:
        """That of how often the different keys came, whatever their number."""
        out = np.empty(TIMES)
        distinct = expected_fingerprint(groups.keys, self.sample.tuples * groups.probability, out)
        expected = np.maximum(np.add.reduceat(out, _BINS) / distinct, 1e-30)
        return float(np.add.reduceat(self.sample.keys, _BINS) @ np.log(expected))


def _level(keys: float) -> Groups:
    return Groups(np.array([float(keys)]), np.array([1 / keys]))


def _bisect(before: Callable[[float], bool], low: float, high: float) -> float:
    """Where ``before`` changes from true to false."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if before(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


COUNTED = 100  # times that a key must come to stand for itself: its frequency is then known to a tenth


def frequencies_of_sample(codes: Int64s, num_keys: int) -> KeyFrequencies:
    """How often a stream asks for each of R's ``num_keys`` keys, from a sample of its key codes, in any order.

    Keys that came a hundred times are counted, the others fitted (`TailFit`). The share of the hottest keys, and what
    comes in ten times as many tuples, is known to a few points. How keys differ that are too rare for the sample is
    not: with s tuples, that is those of P well below 1 / s.

    >>> from semistream.datasets import Zipf
    >>> found = frequencies_of_sample(Zipf(1.0, 10**6, seed=3).keys(20_000), 10**6)
    >>> exact = KeyFrequencies.zipf(1.0, 10**6)
    >>> abs(found.share(1000) - exact.share(1000)) < 0.03
    True
    """
    if codes.size == 0:
        raise InvalidArgument("the sample is empty; give the key codes of some tuples.")
    ordered = np.sort(codes)
    hottest, counts = (np.empty(codes.size // COUNTED, np.int64) for _ in range(2))
    found = often_counted(ordered, COUNTED, hottest, counts)
    tail = Fingerprint.of(ordered, without=hottest[:found])
    return frequencies_of_parts(counts[:found] / codes.size, tail, num_keys)


def frequencies_of_parts(hottest: npt.NDArray[np.float64], tail: Fingerprint, num_keys: int) -> KeyFrequencies:
    """From the shares of the stream that the ``hottest`` keys have, and a sample of what asks for others."""
    if num_keys < 1:
        raise InvalidArgument(f"num_keys is {num_keys}; R has at least 1.")
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
