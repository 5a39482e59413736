"""OperatorRuns: what operators did and how long it took, and the costs for each unit of work that follow from it.

Costs per unit of work, from runs of which the work and the time are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import combinations

import numpy as np

from semistream.costs.key_frequencies import Floats
from semistream.costs.machine import DEFAULT_MACHINE, OperatorCosts
from semistream.errors import InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import DiskCosts

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


ANSWERED, PROBES, STEPS, LOOKED_UP, BATCHES, WAITS, MISSED, FRESH, ANSWERS = 0, 2, 3, 4, 6, 8, 9, 12, 13
"""Places of some kinds of work in `RunPart.work`, and of their costs in `OperatorCosts`."""

_LEAST_LEFT = 0.1  # of the time of a run, for what neither the disk does nor a join that is known


@dataclass(frozen=True)
class RunPart:
    """A part of a run: its work by its counts, in the order of `OperatorCosts`, and what it took.

    In ``all_s`` the processor took ``taken_s``, and the disk gave ``bytes_read``.
    """

    work: Floats
    taken_s: float
    all_s: float
    bytes_read: float


@dataclass(frozen=True)
class OperatorRuns:
    """What operators did in all settings, and how long it took."""

    parts: Mapping[type[SemiStreamJoin], Sequence[RunPart]]

    def costs(self, disk: DiskCosts) -> dict[str, OperatorCosts]:
        """`OperatorCosts` of all operators, by name, on a disk of such costs."""
        measured: dict[str, OperatorCosts] = {}
        for kind, parts in self.parts.items():
            if not issubclass(kind, FrontStage):
                measured[kind.name] = _costs(parts, DEFAULT_MACHINE.operators[kind.name], disk)
        engine = _with_look_ups(measured[SweepJoin.name], self.parts[EngineJoin])
        cached = {"hit_s": engine.hit_s, "miss_s": engine.miss_s, "answers_s": engine.answers_s}
        for kind in self.parts:
            if issubclass(kind, FrontStage):  # what comes before the join is the same code in all of them
                measured[kind.name] = replace(measured[kind.wraps.name], **cached)
        return measured


def _costs(runs: Sequence[RunPart], usual: OperatorCosts, disk: DiskCosts) -> OperatorCosts:
    """The costs that fit runs best, of those kinds of work that an operator usually has; no look-ups in a cache.

    Where it waits for its reads, the disk takes what it needs for the bytes; all else is what an iteration takes. That
    is something, even if the disk was slower when it was measured than while the operator ran.
    """
    work, expected = np.array([part.work for part in runs]), np.array(astuple(usual))
    waits = work[:, WAITS] > 0
    work[:, STEPS] -= work[:, WAITS]  # which have a cost of their own
    times = np.where(waits, [part.all_s for part in runs], [part.taken_s for part in runs])
    reading_s = np.minimum([disk.transfer_s(part.bytes_read) for part in runs], (1 - _LEAST_LEFT) * times)
    asked = work.any(axis=0) & (expected > 0)
    costs = np.zeros(work.shape[1])
    costs[asked] = fit_costs(work[:, asked], times, expected[asked], known_s=np.where(waits, reading_s, 0.0))
    return OperatorCosts(*costs.tolist())


def _with_look_ups(behind: OperatorCosts, runs: Sequence[RunPart]) -> OperatorCosts:
    """The costs of a join behind a cache.

    What the join takes leaves the look-ups of runs, and of those that miss, what it takes to pass them on, and to see
    which of their rows are worth a place in the cache; and the batches that its answers come in.
    """
    own = [LOOKED_UP, MISSED, ANSWERS]
    known = np.array(astuple(behind))
    known[WAITS] = 0.0  # the parts' times are without it
    work = np.array([part.work[own] for part in runs])
    known_s = np.array([min(float(part.work @ known), (1 - _LEAST_LEFT) * part.taken_s) for part in runs])
    usual = np.array(astuple(DEFAULT_MACHINE.operators[EngineJoin.name]))[own]
    taken_s = np.array([part.taken_s for part in runs])
    hit_s, miss_s, answers_s = fit_costs(work, taken_s, usual, known_s=known_s).tolist()
    return replace(behind, hit_s=hit_s, miss_s=miss_s, answers_s=answers_s)
