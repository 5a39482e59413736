"""ServiceTimes: learn the time of a batch from past ones, as a fixed part and seconds for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from semistream.kernels.array_types import Floats

_KEPT = 16  # batches kept
_DECAY = 0.8  # factor on a batch's weight for each later one: the last five or so dominate
_LEAST_WEIGHT = 0.1  # keeps the last large batch before a quiet time above the prior
_OUTLIER = 0.5  # relative error above which a batch weighs less, the more it is off
_PASSES = 4
_PRIOR_WEIGHT = 0.001  # in batches
_TOLD = 0.2  # share of a batch's time that its rows must take for it to measure their cost
_TWICE = 2  # batches needed to measure it: the first of a process starts workers, and takes longer
_AS_LARGE = 0.5  # share of the largest batch's rows that makes a batch large


class Observation(NamedTuple):
    """Measured batch: its seconds, and the rows that it joined and shed."""

    seconds: float
    joined: int
    shed: int


@dataclass(frozen=True)
class ServiceModel:
    """Time of a batch: ``fixed_s`` seconds, plus ``joined_s`` for each joined and ``shed_s`` for each shed row."""

    fixed_s: float
    joined_s: float
    shed_s: float

    def seconds(self, joined: float, shed: float = 0) -> float:
        """Return the seconds of a batch.

        >>> ServiceModel(fixed_s=1.0, joined_s=1e-5, shed_s=1e-6).seconds(100_000, 200_000)
        2.2
        """
        return self.fixed_s + self.joined_s * joined + self.shed_s * shed

    def joinable(self, rows: int, seconds: float) -> int:
        """Return how many of ``rows`` can be joined in ``seconds`` if all others are shed.

        >>> ServiceModel(fixed_s=1.0, joined_s=1e-5, shed_s=0.0).joinable(900_000, 3.0)
        200000
        """
        if self.seconds(rows) <= seconds:
            return rows
        extra_s = self.joined_s - self.shed_s
        if extra_s <= 0:  # shedding saves no time
            return rows
        return int(min(max((seconds - self.fixed_s - self.shed_s * rows) / extra_s + 1e-6, 0), rows))


PRIOR = ServiceModel(fixed_s=0.5, joined_s=2e-6, shed_s=3e-7)
"""Model before anything is measured."""


class ServiceTimes:
    """Service model fitted to the last batches by least squares of the relative errors.

    Recent batches weigh more, so that the model follows drift. An outlier, such as the first batch of a process, weighs
    less, unless others agree with it. No part of the model is negative. Batches of one size do not reveal how much of
    their time is fixed; the fit then stays close to the ``prior``. Until a batch sheds rows, the ratio of the costs of
    shedding and joining is that of the prior. One old large batch is kept: after quiet hours, nothing else reveals the
    cost of a row.

    >>> times = ServiceTimes()
    >>> for rows in (100_000, 200_000, 400_000):
    ...     times.add(Observation(1.0 + rows * 1e-5, rows, 0))
    >>> round(times.model.fixed_s), round(times.model.joined_s * 1e6)
    (1, 10)
    """

    def __init__(self, seen: Sequence[Observation] = (), prior: ServiceModel = PRIOR) -> None:
        self.prior = prior
        self._seen = _remembered(seen)
        self.model = _fitted(self._seen, prior)

    @property
    def seen(self) -> list[Observation]:
        """Batches kept, latest last."""
        return list(self._seen)

    @property
    def measured(self) -> bool:
        """True if the cost of a row is known: rows took at least a fifth of the time in two batches or more."""
        telling = [each for each in self._seen if self.model.joined_s * each.joined >= _TOLD * each.seconds]
        return len(telling) >= _TWICE

    def add(self, observation: Observation) -> None:
        """Learn from a finished batch; ignore one with no or negative time."""
        if observation.seconds > 0:
            self._seen = _remembered([*self._seen, observation])
            self.model = _fitted(self._seen, self.prior)


def _remembered(seen: Sequence[Observation]) -> list[Observation]:
    """Return the last batches; the first place goes to the last large batch, if that is older."""
    if len(seen) <= _KEPT:
        return list(seen)
    enough = _AS_LARGE * max(each.joined for each in seen)
    large = max(place for place, each in enumerate(seen) if each.joined >= enough)
    return [seen[min(large, len(seen) - _KEPT)], *seen[-_KEPT + 1 :]]


def _fitted(seen: Sequence[Observation], prior: ServiceModel) -> ServiceModel:
    if not seen:
        return prior
    expected = np.array([prior.fixed_s, prior.joined_s, prior.shed_s])
    taken = np.array([each.seconds for each in seen])
    sizes = np.array([(1.0, each.joined, each.shed) for each in seen])
    relative = sizes / taken[:, None]
    decayed = np.maximum(np.power(_DECAY, np.arange(len(seen), dtype=np.float64)[::-1]), _LEAST_WEIGHT)
    weights = decayed
    found = expected
    for _ in range(_PASSES):
        found = _solved(relative, weights, expected)
        error = np.abs(relative @ found - 1)
        weights = decayed * np.minimum(1, _OUTLIER / np.maximum(error, 1e-9))
    fixed_s, joined_s, shed_s = found.tolist()
    if not sizes[:, 2].any():
        shed_s = prior.shed_s * joined_s / prior.joined_s
    return ServiceModel(fixed_s, joined_s, shed_s)


def _solved(relative: Floats, weights: Floats, expected: Floats) -> Floats:
    """Solve the non-negative least squares fit of the batches' times, with a slight pull to the ``expected`` parts."""
    rooted = np.sqrt(weights)
    pull = np.sqrt(_PRIOR_WEIGHT)
    left = np.vstack([relative * rooted[:, None], np.diag(pull / expected)])
    right = np.concatenate([rooted, np.full(expected.size, pull)])
    best, least = np.zeros(expected.size), np.inf
    for count in range(1, expected.size + 1):
        for parts in combinations(range(expected.size), count):
            some = np.zeros(expected.size)
            scale = expected[list(parts)]  # columns differ by six orders of magnitude
            some[list(parts)] = np.linalg.lstsq(left[:, parts] * scale, right, rcond=None)[0] * scale
            error = float(np.sum((left @ some - right) ** 2))
            if (some >= 0).all() and error < least:
                best, least = some, error
    return best
