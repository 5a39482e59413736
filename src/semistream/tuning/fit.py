"""Costs per unit of work, from runs of which the work and the time are known."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.tuning.frequencies import Floats

_TRUST = 0.2  # of what is usual, for each kind of work, against a run


def fit_costs(work: Floats, seconds: Floats, usual: Floats | None = None, *, known_s: Floats | float = 0.0) -> Floats:
    """The seconds of each kind of work, none below 0, that are nearest to what runs took.

    ``work`` has a row for each run and a column for each kind. Distances are relative, so that short runs count as much
    as long ones. With few kinds it is exact: the best of all choices of kinds that take any time, each by least squares
    (the solution of non-negative least squares is that of its own support).

    Of the time of each run ``known_s`` is taken by other work: what is not known of that run is nearest to the rest.

    Runs may not tell kinds apart that always come together. Then the proportions of ``usual`` costs decide, if they are
    given: to differ from these, for a machine that is as fast as the runs say, counts a little.

    >>> fit_costs(np.array([[1.0, 0.0], [1.0, 2.0], [3.0, 1.0]]), np.array([2.0, 8.0, 9.0])).round(6).tolist()
    [2.0, 3.0]
    """
    least = work.shape[1] if usual is None else 1
    if work.shape[0] < least or work.shape[0] != seconds.size:
        raise InvalidArgument(
            f"{work.shape[0]} runs and {seconds.size} times for {work.shape[1]} kinds of work; "
            "give as many times as runs, and at least as many runs as kinds, or one and the usual costs."
        )
    if not (np.all(np.isfinite(work)) and np.all(seconds > 0) and np.all(np.isfinite(seconds))):
        raise InvalidArgument("a run has no time above 0, or work that is no number; measure it again.")
    scaled, wanted = work / seconds[:, np.newaxis], 1 - known_s / seconds
    if usual is not None and np.any(scaled @ usual > 0):
        expected = scaled @ usual
        here = usual * float(expected @ wanted) / float(expected @ expected)  # on a machine of this speed
        known = np.flatnonzero(here > 0)
        trusted = np.zeros((known.size, usual.size))
        trusted[np.arange(known.size), known] = _TRUST / here[known]
        scaled, wanted = np.vstack([scaled, trusted]), np.append(wanted, np.full(known.size, _TRUST))
    return _least_squares(scaled, wanted)


def _least_squares(scaled: Floats, wanted: Floats) -> Floats:
    """What comes nearest to what is wanted, with no number below 0."""
    kinds_there_are = scaled.shape[1]
    best, least = np.zeros(kinds_there_are), float(wanted @ wanted)
    for size in range(1, kinds_there_are + 1):
        for kinds in combinations(range(kinds_there_are), size):
            some = scaled[:, kinds]
            costs, *_ = np.linalg.lstsq(some, wanted, rcond=None)
            error = float(np.sum((some @ costs - wanted) ** 2))
            if np.all(costs >= 0) and error < least:
                best, least = np.zeros(kinds_there_are), error
                best[list(kinds)] = costs
    return best
