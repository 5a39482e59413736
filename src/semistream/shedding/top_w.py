"""TopW: the rows that give the most results."""

from __future__ import annotations

from operator import add

import numpy as np

from semistream.shedding.decision import Account, Cut, CutDecision, Decision
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary, chance_quotas


class TopW(Strategy):
    """Keeps the ``min(w, rows)`` rows with the most matches in R: of one batch, no ``w`` rows give more results.

    Over several batches more may be had by waiting for rows that give more (`OptimalOffline`). Rows that tie for the
    last places are chosen by a uniform sample. MESH has a heap of w tuples; here the histogram of matches tells where
    the cut lies, so that parts need not send their rows to each other. What is kept is no sample: estimates cannot be
    made of it.

    MESH 4.2, "Online shedding"; Table 2: Many-to-Many / MAX-SUBSET.

    >>> import numpy as np
    >>> TopW().shed(StreamPart(5, matches=np.array([1, 0, 7, 3, 0])), 2, seed=0).mask.tolist()
    [False, False, True, True, False]
    """

    name = "top_w"

    def summarize(self, part: StreamPart) -> PartSummary:
        """How many rows there are with each number of matches."""
        return PartSummary.of_matches(part, self.name)

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        w, rows = require_rows(limit), batch.rows
        total = int(rows.sum())
        at_least = np.cumsum(rows[::-1])[::-1]  # rows with so many matches or more
        if total <= w:
            cut, kept_results = Cut(-1, 0, (0,) * len(batch.numbers)), int(batch.matches @ rows)
        else:
            last = int(np.flatnonzero(at_least > w)[-1])  # the first class from the top that is not kept whole
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
