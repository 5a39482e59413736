"""ServiceTimes: what batches take, learnt from those that were: a fixed part, and seconds for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]

_KEPT = 16  # batches that are remembered
_DECAY = 0.8  # of the weight of a batch with each later one: what is learnt is of the last five or so
_LEAST_WEIGHT = 0.1  # so that the last large one of a quiet time still counts for more than the prior
_OUTLIER = 0.5  # a batch that is off by more than that share counts less, the more it is off
_PASSES = 4
_PRIOR_WEIGHT = 0.001  # in batches
_TOLD = 0.2  # of a batch's time, that its rows take in one that tells what they take
_TWICE = 2  # batches that have to tell it: the first of a process starts workers, and takes longer
_AS_LARGE = 0.5  # of the rows of the largest batch, that one has which tells as much


class Observation(NamedTuple):
    """What a batch took: seconds, for rows that were joined and rows that were shed."""

    seconds: float
    joined: int
    shed: int


@dataclass(frozen=True)
class ServiceModel:
    """Seconds of a batch: ``fixed_s``, and so many for each row that is joined or shed."""

    fixed_s: float
    joined_s: float
    shed_s: float

    def seconds(self, joined: float, shed: float = 0) -> float:
        """What a batch takes.

        >>> ServiceModel(fixed_s=1.0, joined_s=1e-5, shed_s=1e-6).seconds(100_000, 200_000)
        2.2
        """
        return self.fixed_s + self.joined_s * joined + self.shed_s * shed

    def joinable(self, rows: int, seconds: float) -> int:
        """How many of so many rows can be joined in a time, if all others are shed.

        >>> ServiceModel(fixed_s=1.0, joined_s=1e-5, shed_s=0.0).joinable(900_000, 3.0)
        200000
        """
        if self.seconds(rows) <= seconds:
            return rows
        extra_s = self.joined_s - self.shed_s
        if extra_s <= 0:  # to shed rows saves nothing
            return rows
        return int(min(max((seconds - self.fixed_s - self.shed_s * rows) / extra_s + 1e-6, 0), rows))


PRIOR = ServiceModel(fixed_s=0.5, joined_s=2e-6, shed_s=3e-7)
"""Of batches that nothing at all is known of."""


class ServiceTimes:
    """A model of what batches take, by least squares of relative errors over the last of them.

    Recent batches weigh more, so that it follows a service that drifts; one that is far off, as the first of a process
    is, weighs less, unless others are off too. No part is below zero. What batches of one size do not tell, how much of
    their time is fixed, is drawn to the ``prior``, what it was taken to be before any was seen. As long as none has
    shed rows, to shed one is taken to be as much less than to join one as in the prior. Of batches of long ago a large
    one is remembered: after quiet hours it is all that tells what a row takes.

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
        """What is remembered, the last at the end."""
        return list(self._seen)

    @property
    def measured(self) -> bool:
        """Whether it was measured what rows take: in more than one batch they took a good part of the time."""
        telling = [each for each in self._seen if self.model.joined_s * each.joined >= _TOLD * each.seconds]
        return len(telling) >= _TWICE

    def add(self, observation: Observation) -> None:
        """Learn from a batch that was done; one that took no time, or a negative one, is none."""
        if observation.seconds > 0:
            self._seen = _remembered([*self._seen, observation])
            self.model = _fitted(self._seen, self.prior)


def _remembered(seen: Sequence[Observation]) -> list[Observation]:
    """The last batches, and in the place of the first of them the last large one, if that was before."""
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


def _solved(relative: _Floats, weights: _Floats, expected: _Floats) -> _Floats:
    """The parts, none below zero, that are nearest to taking each batch its time, and a little to what was expected."""
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
