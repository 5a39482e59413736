"""KeepW: as many rows as there is time for, those that came first."""

from __future__ import annotations

from semistream.shedding.cut_decision import Cut, CutDecision
from semistream.shedding.decision import Account, Decision
from semistream.shedding.quotas import even_quotas
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary


class KeepW(Strategy):
    """Keeps exactly ``min(w, rows)`` rows: no strategy that joins at most ``w`` rows loses fewer.

    For joins where each row gives one result (keys of R are unique), so that all rows are worth the same; then no
    strategy loses fewer results either. Each part keeps the first of its rows, in proportion to how many it has, so
    that tasks stay as busy as each other. What is kept is no sample: estimates cannot be made of it.

    MESH 4.1, Table 2: Many-to-One / MAX-SUBSET, "Keep w".

    >>> kept = KeepW().shed(StreamPart(5), 3, seed=0)
    >>> kept.mask.tolist()
    [True, True, True, False, False]
    """

    name = "keep_w"

    def summarize(self, part: StreamPart) -> PartSummary:
        """How many rows there are."""
        return PartSummary.of_rows(part)

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        rows = batch.rows_in_parts()
        total, keep = sum(rows), min(require_rows(limit), sum(rows))
        quotas = even_quotas(rows, keep)
        return CutDecision(
            strategy=self.name,
            seed=seed,
            parts=batch.numbers,
            rows=rows,
            kept=quotas,
            results=None,
            account=Account(keep, total - keep, keep, total - keep),
            design=None,
            cuts=(Cut(0, total, quotas),),
            by_chance=False,
            counts_matches=False,
        )
