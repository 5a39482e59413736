"""CostAwareTopW: the rows that give the most results for their time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.shedding.decision import Account, Cut, CutDecision, Decision
from semistream.shedding.strategy import Strategy
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary, chance_quotas


class CostAwareTopW(Strategy):
    """Keeps rows by their results per second until the seconds are used up.

    A row whose key the front stage holds costs almost nothing: to drop it loses results and saves no time. So rows are
    dropped by results lost per second saved, where `TopW` looks at results alone. The limit is in seconds, and the rows
    that are kept take no more than that, exactly.

    Guarantee: the results kept are fewer than those of any choice within the limit by less than the matches of one row,
    the first one that did not fit (G. B. Dantzig, Oper. Res. 5(2), 1957). If all rows cost the same it keeps what
    `TopW` keeps. Rows that cost nothing are all kept. What is kept is no sample.

    Ours, beyond MESH, where each row costs the same since each waits for all of R. A cost that all rows of a batch
    share, such as a scan, is to be taken off the limit first.

    >>> import numpy as np
    >>> part = StreamPart(4, matches=np.array([1, 2, 3, 3]), seconds=np.array([0.125, 0.125, 1.0, 1.0]))
    >>> CostAwareTopW().shed(part, 1.25, seed=0).mask.tolist()[:2]
    [True, True]
    """

    name = "cost_aware_top_w"

    def summarize(self, part: StreamPart) -> PartSummary:
        """How many rows there are with each number of matches and each cost."""
        return PartSummary.of_costs(part, self.name)

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
    """The limit, if it is a time."""
    is_number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
    if not is_number or not 0 <= limit < math.inf:
        raise InvalidArgument(f"seconds is {limit!r}; give a finite number of 0 seconds or more.")
    return float(limit)


def _greedy(batch: BatchSummary, limit: float) -> Int64s:
    """How many rows of each class are kept: by falling results per second, of equal ones the cheaper first.

    When a class does not fit whole, less time is left than one of its rows takes: no later class of the same cost gets
    any, so those kept of each cost are the ones with the most matches. Cheaper ones may still fit and are tried. Times
    are added up as whole numbers, of which doubles are multiples of a power of two: rounding never keeps a row that
    there is no time for.
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
    """How many times ``1 / unit`` a time is."""
    numerator, denominator = time.as_integer_ratio()
    return numerator * (unit // denominator)
