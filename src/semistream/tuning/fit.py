"""Costs per unit of work, from runs of which the work and the time are known."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.tuning.frequencies import Floats


def fit_costs(work: Floats, seconds: Floats) -> Floats:
    """The seconds of each kind of work, none below 0, that are nearest to what runs took.

    ``work`` has a row for each run and a column for each kind. Distances are relative, so that short runs count as much
    as long ones. With few kinds it is exact: the best of all choices of kinds that take any time, each by least squares
    (the solution of non-negative least squares is that of its own support).

    >>> fit_costs(np.array([[1.0, 0.0], [1.0, 2.0], [3.0, 1.0]]), np.array([2.0, 8.0, 9.0])).round(6).tolist()
    [2.0, 3.0]
    """
    if work.shape[0] < work.shape[1] or work.shape[0] != seconds.size:
        raise InvalidArgument(
            f"{work.shape[0]} runs and {seconds.size} times for {work.shape[1]} kinds of work; "
            "give as many times as runs, and at least as many runs as kinds."
        )
    if not (np.all(np.isfinite(work)) and np.all(seconds > 0) and np.all(np.isfinite(seconds))):
        raise InvalidArgument("a run has no time above 0, or work that is no number; measure it again.")
    scaled, ones = work / seconds[:, np.newaxis], np.ones(seconds.size)
    best, least = np.zeros(work.shape[1]), float(ones @ ones)
    for size in range(1, work.shape[1] + 1):
        for kinds in combinations(range(work.shape[1]), size):
            some = scaled[:, kinds]
            costs, *_ = np.linalg.lstsq(some, ones, rcond=None)
            error = float(np.sum((some @ costs - ones) ** 2))
            if np.all(costs >= 0) and error < least:
                best, least = np.zeros(work.shape[1]), error
                best[list(kinds)] = costs
    return best
