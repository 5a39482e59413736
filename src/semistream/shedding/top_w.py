"""TopW: keep the rows with the most results."""

from __future__ import annotations

from operator import add

import numpy as np

from semistream.shedding.decision import Account, Cut, CutDecision, Decision
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary, chance_quotas


class TopW(Strategy):
    """Strategy that keeps the ``min(w, rows)`` rows with the most matches in R.

    ``w`` is the limit given to `decide` and `shed`, in rows. No other ``w`` rows of the batch give more results. Over
    several batches, waiting for more valuable rows can save more (`OptimalOffline`). Ties for the last places are
    broken by a uniform sample. MESH uses a heap of w tuples; here a histogram of matches finds the cut, so that tasks
    need not exchange rows. The kept rows are not a sample, and do not support estimates.

    Examples
    --------
    >>> import numpy as np
    >>> TopW().shed(StreamPart(5, matches=np.array([1, 0, 7, 3, 0])), 2, seed=0).mask.tolist()
    [False, False, True, True, False]

    References
    ----------
    MESH 4.2, "Online shedding"; Table 2: Many-to-Many / MAX-SUBSET.
    """

    name = "top_w"

    def summarize(self, part: StreamPart) -> PartSummary:
        """Count the rows with each number of matches."""
        return PartSummary.of_matches(part, self.name)

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        w, rows = require_rows(limit), batch.rows
        total = int(rows.sum())
        at_least = np.cumsum(rows[::-1])[::-1]  # rows in each class and those above
        if total <= w:
            cut, kept_results = Cut(-1, 0, (0,) * len(batch.numbers)), int(batch.matches @ rows)
        else:
            last = int(np.flatnonzero(at_least > w)[-1])  # the first class from the top that does not fit whole
            above = int(at_least[last] - rows[last])
            of_parts = batch.rows_in_parts(batch.matches == batch.matches[last])
            cut = Cut(int(batch.matches[last]), int(rows[last]), chance_quotas(of_parts, w - above, seed))
            kept_results = int(batch.matches[last + 1 :] @ rows[last + 1 :]) + cut.at * (w - above)
        results, keep = int(batch.matches @ rows), min(w, total)
        above_cut = batch.rows_in_parts(batch.matches > cut.at)
        return CutDecision(
            strategy=self.name,
            seed=seed,
            parts=batch.numbers,
            rows=batch.rows_in_parts(),
            kept=tuple(map(add, above_cut, cut.quotas)),
            results=batch.results_in_parts(),
            account=Account(keep, total - keep, kept_results, results - kept_results),
            design=None,
            cuts=(cut,),
            by_chance=True,
            counts_matches=True,
        )
