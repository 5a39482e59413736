"""Slow oracles: every schedule, every choice, and the paper's recurrence as printed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations
from statistics import NormalDist


def every_schedule(matches: Sequence[int], w: int, c_loop: int, first_request: int, *, partial: bool) -> int:
    """The least loss of all schedules, whatever they keep and whenever they hand a buffer over once it is asked for."""

    def least(i: int, request: int, held: int) -> int:
        if i == len(matches):
            return 0
        options = [matches[i] + least(i + 1, request, held)]
        if held < w:
            options.append(least(i + 1, request, held + 1))
        if i >= request and (held == w or (partial and held)):
            options.append(least(i, i + c_loop, 0))
        return min(options)

    return least(0, first_request, 0) if w else sum(matches)


def printed_recurrence(matches: Sequence[int], w: int, c_loop: int, first_request: int = 0) -> int:
    """optloss of MESH 4.2, word by word: not the pseudo-code, which drops a term."""

    @cache
    def optloss(i: int, lt: int, sb: int) -> int:
        if i >= len(matches):
            return 0
        if sb < w:
            return min(optloss(i + 1, lt, sb + 1), optloss(i + 1, lt, sb) + matches[i])
        if i < lt:
            return optloss(i + 1, lt, w) + matches[i]
        return optloss(i, i + c_loop, 0)

    return optloss(0, first_request, 0)


def most_results(matches: Sequence[int], seconds: Sequence[float], limit: float) -> int:
    """The most results of any rows that take no longer than the limit."""
    costs = [Fraction(cost) for cost in seconds]
    rows = range(len(matches))
    sets = (chosen for size in range(len(matches) + 1) for chosen in combinations(rows, size))
    fitting = (chosen for chosen in sets if sum(costs[row] for row in chosen) <= Fraction(limit))
    return max(sum(matches[row] for row in chosen) for chosen in fitting)


def normal_limit(false_alarm: float) -> float:
    """Return the number of standard deviations exceeded, to either side, with this probability."""
    return -NormalDist().inv_cdf(false_alarm / 2)


def chi_square_limit(freedom: int, false_alarm: float) -> float:
    """Return the value that chi-square with ``freedom`` degrees exceeds with this probability (Wilson and Hilferty)."""
    z = -NormalDist().inv_cdf(false_alarm)
    return freedom * float(1 - 2 / (9 * freedom) + z * (2 / (9 * freedom)) ** 0.5) ** 3
