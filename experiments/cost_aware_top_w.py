"""CostAwareTopW: a shedding strategy that keeps the rows with the most results per second.

It is an experiment, not a strategy for pipelines: the cost of a row depends on the contents of the workers' caches,
which a replay finds in another state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.shedding import Account, Decision, PartSummary, Strategy, StreamPart
from semistream.shedding.decision import Cut, CutDecision
from semistream.shedding.summary import BatchSummary, chance_quotas

MOST_COSTS = 64


class CostAwareTopW(Strategy):
    """Strategy that keeps rows by results per second until the time is used up.

    A row whose key is in the cache costs almost nothing: dropping it loses results and saves no time. Rows are
    therefore ranked by results per second, where `TopW` ranks by results alone. The limit is in seconds, and the kept
    rows never take more than that.

    Guarantee: the results kept fall short of the best choice within the limit by less than the matches of one row, the
    first that did not fit (G. B. Dantzig, Oper. Res. 5(2), 1957). If all rows cost the same, it keeps what `TopW`
    keeps. Rows without a cost are all kept. The kept rows are not a sample.

    This goes beyond MESH, where each row costs the same since each waits for all of R. Subtract costs shared by all
    rows of a batch, such as a scan, from the limit first.

    >>> import numpy as np
    >>> part = StreamPart(4, matches=np.array([1, 2, 3, 3]), seconds=np.array([0.125, 0.125, 1.0, 1.0]))
    >>> CostAwareTopW().shed(part, 1.25, seed=0).mask.tolist()[:2]
    [True, True]
    """

    name = "cost_aware_top_w"

    def summarize(self, part: StreamPart) -> PartSummary:
        """Count the rows with each number of matches and each cost."""
        matches, seconds = part.require_matches(self.name), part.require_seconds(self.name)
        costs = np.unique(seconds)
        if costs.size > MOST_COSTS:
            raise InvalidArgument(
                f"seconds has {costs.size} distinct values; give at most {MOST_COSTS}, such as one for cached keys and "
                "one for all others."
            )
        alike = [matches[seconds == cost] for cost in costs]
        found = [PartSummary.of_matches(StreamPart(own.size, matches=own), self.name) for own in alike]
        empty = np.empty(0, np.int64)
        return PartSummary(
            part.number,
            np.concatenate([empty, *(each.matches for each in found)]),
            np.repeat(costs, [each.matches.size for each in found]),
            np.concatenate([empty, *(each.rows for each in found)]),
        )

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        keep = _greedy(batch, _require_seconds(limit))
        rows = batch.rows
        cuts = []
        for number, cost in enumerate(np.unique(batch.seconds).tolist()):
            own = np.flatnonzero(batch.seconds == cost)  # matches ascend
            short = own[keep[own] < rows[own]]
            if short.size == 0:
                cuts.append(Cut(-1, 0, (0,) * len(batch.numbers), cost))
                continue
            last = int(short[-1])
            of_parts = batch.rows_in_parts(np.arange(rows.size) == last)
            quotas = chance_quotas(of_parts, int(keep[last]), (seed + number) % 2**64)
            cuts.append(Cut(int(batch.matches[last]), int(rows[last]), quotas, cost))
        kept = np.zeros(len(batch.numbers), np.int64)
        for cut in cuts:
            kept += batch.rows_in_parts((batch.seconds == cut.seconds) & (batch.matches > cut.at))
            kept += cut.quotas
        kept_results, results = int(batch.matches @ keep), int(batch.matches @ rows)
        return CutDecision(
            strategy=self.name,
            seed=seed,
            parts=batch.numbers,
            rows=batch.rows_in_parts(),
            kept=tuple(kept.tolist()),
            results=batch.results_in_parts(),
            account=Account(int(keep.sum()), int((rows - keep).sum()), kept_results, results - kept_results),
            design=None,
            cuts=tuple(cuts),
            by_chance=True,
            counts_matches=True,
        )


def _require_seconds(limit: Any) -> float:
    """Return the limit in seconds; refuse anything but a finite number of 0 or more."""
    is_number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
    if not is_number or not 0 <= limit < math.inf:
        raise InvalidArgument(f"seconds is {limit!r}; give a finite number of 0 seconds or more.")
    return float(limit)


def _greedy(batch: BatchSummary, limit: float) -> Int64s:
    """Return how many rows of each class to keep: by descending results per second, cheaper classes first on ties.

    When a class does not fit whole, the time left is shorter than one of its rows takes. No later class of the same
    cost then gets any, so the rows kept of each cost are those with the most matches; cheaper classes are still tried.
    Times are summed as integers, multiples of a power of two like all doubles, so that rounding never keeps a row that
    does not fit.
    """
    keep = np.zeros(batch.matches.size, np.int64)
    costs = np.unique(batch.seconds).tolist()
    unit = max(time.as_integer_ratio()[1] for time in (limit, *costs))
    left, *whole = (_times(time, unit) for time in (limit, *costs))
    cost_of = [whole[place] for place in np.searchsorted(costs, batch.seconds).tolist()]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        density = np.where(batch.seconds > 0, batch.matches / batch.seconds, np.inf)
    rows = batch.rows.tolist()
    open_costs = set(whole)
    for place in np.lexsort((batch.seconds, -density)).tolist():
        cost = cost_of[place]
        if cost not in open_costs:
            continue
        kept = rows[place] if cost == 0 else min(rows[place], left // cost)
        keep[place] = kept
        left -= cost * kept
        if kept < rows[place]:
            open_costs = {each for each in open_costs if each <= left}
            if not open_costs:
                break
    return keep


def _times(time: float, unit: int) -> int:
    """Return a time in units of ``1 / unit`` seconds."""
    numerator, denominator = time.as_integer_ratio()
    return numerator * (unit // denominator)
