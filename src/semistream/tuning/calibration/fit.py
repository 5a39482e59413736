"""Fit of costs per unit of work to measured runs of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import combinations

import numpy as np

from semistream.costs.machine import DEFAULT_MACHINE, OperatorCosts
from semistream.errors import InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.kernels.array_types import Floats
from semistream.relation import DiskCosts

_TRUST = 0.2  # weight of the usual cost of each kind of work, relative to a run


def fit_costs(work: Floats, seconds: Floats, usual: Floats | None = None, *, known_s: Floats | float = 0.0) -> Floats:
    """Return the seconds per unit of each kind of work, none negative, that best fit the times of the runs.

    ``work`` has a row for each run and a column for each kind. Errors are relative, so short runs count as much as long
    ones. The fit is exact non-negative least squares: ordinary least squares on each subset of the kinds, of which the
    best without a negative cost is kept. This is feasible because there are few kinds.

    ``known_s`` of each run's time belongs to other work; the costs are fitted to the rest.

    Runs cannot tell apart kinds of work that always occur together. If ``usual`` costs are given, their proportions
    then decide: deviations from them, scaled to the speed of this machine, enter the error with a small weight.

    >>> fit_costs(np.array([[1.0, 0.0], [1.0, 2.0], [3.0, 1.0]]), np.array([2.0, 8.0, 9.0])).round(6).tolist()
    [2.0, 3.0]
    """
    least = work.shape[1] if usual is None else 1
    if work.shape[0] < least or work.shape[0] != seconds.size:
        raise InvalidArgument(
            f"{work.shape[0]} runs and {seconds.size} times for {work.shape[1]} kinds of work; "
            "give one time per run, and at least as many runs as kinds, or at least one run and the usual costs."
        )
    if not (np.all(np.isfinite(work)) and np.all(seconds > 0) and np.all(np.isfinite(seconds))):
        raise InvalidArgument("a run has no time above 0, or work that is not a finite number; measure it again.")
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
    """Solve non-negative least squares exactly, by trying all subsets of the columns."""
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


ANSWERED, PROBES, STEPS, LOOKED_UP, BATCHES, WAITS, MISSED, FRESH, ANSWERS = 0, 2, 3, 4, 6, 8, 9, 12, 13
"""Indices of some kinds of work in `RunPart.work`, and of their costs in `OperatorCosts`."""

_LEAST_LEFT = 0.1  # share of a run's time left to fit, after the disk or a known join


@dataclass(frozen=True)
class RunPart:
    """One part of a run: its units of work, in the order of `OperatorCosts`, and its times.

    It took ``all_s`` seconds of wall-clock time and ``taken_s`` of processor time, and read ``bytes_read`` from disk.
    """

    work: Floats
    taken_s: float
    all_s: float
    bytes_read: float


@dataclass(frozen=True)
class OperatorRuns:
    """Measured runs of all operators, by operator."""

    parts: Mapping[type[SemiStreamJoin], Sequence[RunPart]]

    def costs(self, disk: DiskCosts) -> dict[str, OperatorCosts]:
        """Fit the costs of all operators, by name, given the costs of the disk."""
        measured: dict[str, OperatorCosts] = {}
        for kind, parts in self.parts.items():
            if not issubclass(kind, FrontStage):
                measured[kind.name] = _costs(parts, DEFAULT_MACHINE.operators[kind.name], disk)
        engine = _with_look_ups(measured[SweepJoin.name], self.parts[EngineJoin])
        cached = {"hit_s": engine.hit_s, "miss_s": engine.miss_s, "answers_s": engine.answers_s}
        for kind in self.parts:
            if issubclass(kind, FrontStage):  # all front stages run the same code in front of their join
                measured[kind.name] = replace(measured[kind.wraps.name], **cached)
        return measured


def _costs(runs: Sequence[RunPart], usual: OperatorCosts, disk: DiskCosts) -> OperatorCosts:
    """Fit the costs of an operator without cache to its runs, for the kinds of work with a usual cost above 0.

    If the operator waits for its reads, the time to transfer the bytes is the disk's, and the rest of the wall-clock
    time the operator's. At least a tenth is left to the operator, in case the disk was slower when it was measured.
    """
    work, expected = np.array([part.work for part in runs]), np.array(astuple(usual))
    waits = work[:, WAITS] > 0
    work[:, STEPS] -= work[:, WAITS]  # waits have their own cost
    times = np.where(waits, [part.all_s for part in runs], [part.taken_s for part in runs])
    reading_s = np.minimum([disk.transfer_s(part.bytes_read) for part in runs], (1 - _LEAST_LEFT) * times)
    asked = work.any(axis=0) & (expected > 0)
    costs = np.zeros(work.shape[1])
    costs[asked] = fit_costs(work[:, asked], times, expected[asked], known_s=np.where(waits, reading_s, 0.0))
    return OperatorCosts(*costs.tolist())


def _with_look_ups(behind: OperatorCosts, runs: Sequence[RunPart]) -> OperatorCosts:
    """Add the costs of a cache in front of the join with costs ``behind``.

    The known costs of the join are subtracted from the runs. The rest is fitted to three kinds of work: look-ups,
    misses (handing a tuple to the join, and deciding if its rows are worth caching), and batches of results.
    """
    own = [LOOKED_UP, MISSED, ANSWERS]
    known = np.array(astuple(behind))
    known[WAITS] = 0.0  # processor times exclude waiting
    work = np.array([part.work[own] for part in runs])
    known_s = np.array([min(float(part.work @ known), (1 - _LEAST_LEFT) * part.taken_s) for part in runs])
    usual = np.array(astuple(DEFAULT_MACHINE.operators[EngineJoin.name]))[own]
    taken_s = np.array([part.taken_s for part in runs])
    hit_s, miss_s, answers_s = fit_costs(work, taken_s, usual, known_s=known_s).tolist()
    return replace(behind, hit_s=hit_s, miss_s=miss_s, answers_s=answers_s)
