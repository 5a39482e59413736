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
_OUTLIER = 0.5  # a batch that is off by more than that share counts less, the more it is off
_PASSES = 4
_PRIOR = np.array([0.5, 2e-6, 3e-7])  # of a batch that nothing is known of
_PRIOR_WEIGHT = 0.001  # in batches


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


class ServiceTimes:
    """A model of what batches take, by least squares of relative errors over the last of them.

    Recent batches weigh more, so that it follows a service that drifts; one that is far off, as the first of a process
    is, weighs less, unless others are off too. No part is below zero. What batches of one size do not tell, how much of
    their time is fixed, is drawn to what it was taken to be before any was seen.

    >>> times = ServiceTimes()
    >>> for rows in (100_000, 200_000, 400_000):
    ...     times.add(Observation(1.0 + rows * 1e-5, rows, 0))
    >>> round(times.model.fixed_s), round(times.model.joined_s * 1e6)
    (1, 10)
    """

    def __init__(self, seen: Sequence[Observation] = ()) -> None:
        self._seen = list(seen)[-_KEPT:]
        self.model = _fitted(self._seen)

    @property
    def seen(self) -> list[Observation]:
        """What is remembered, the last at the end."""
        return list(self._seen)

    def add(self, observation: Observation) -> None:
        """Learn from a batch that was done; one that took no time, or a negative one, is none."""
        if observation.seconds > 0:
            self._seen = [*self._seen, observation][-_KEPT:]
            self.model = _fitted(self._seen)


def _fitted(seen: Sequence[Observation]) -> ServiceModel:
    if not seen:
        return ServiceModel(*_PRIOR.tolist())
    taken = np.array([each.seconds for each in seen])
    sizes = np.array([(1.0, each.joined, each.shed) for each in seen])
    relative = sizes / taken[:, None]
    decayed = np.power(_DECAY, np.arange(len(seen), dtype=np.float64)[::-1])
    weights = decayed
    found = _PRIOR
    for _ in range(_PASSES):
        found = _solved(relative, weights)
        error = np.abs(relative @ found - 1)
        weights = decayed * np.minimum(1, _OUTLIER / np.maximum(error, 1e-9))
    return ServiceModel(*found.tolist())


def _solved(relative: _Floats, weights: _Floats) -> _Floats:
    """The parts, none below zero, that are nearest to taking each batch its time, and a little to what was expected."""
    rooted = np.sqrt(weights)
    pull = np.sqrt(_PRIOR_WEIGHT)
    left = np.vstack([relative * rooted[:, None], np.diag(pull / _PRIOR)])
    right = np.concatenate([rooted, np.full(_PRIOR.size, pull)])
    best, least = np.zeros(_PRIOR.size), np.inf
    for count in range(1, _PRIOR.size + 1):
        for parts in combinations(range(_PRIOR.size), count):
            some = np.zeros(_PRIOR.size)
            scale = _PRIOR[list(parts)]  # columns differ by six orders of magnitude
            some[list(parts)] = np.linalg.lstsq(left[:, parts] * scale, right, rcond=None)[0] * scale
            error = float(np.sum((left @ some - right) ** 2))
            if (some >= 0).all() and error < least:
                best, least = some, error
    return best
