"""KeepW: as many rows as there is time for, whichever they are."""

from __future__ import annotations

from semistream.shedding.cut_decision import Cut, CutDecision
from semistream.shedding.decision import Account, Decision
from semistream.shedding.quotas import even_quotas, last_quotas
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary


class KeepW(Strategy):
    """Keeps exactly ``min(w, rows)`` rows: no strategy that joins at most ``w`` rows loses fewer.

    For joins where each row gives one result (keys of R are unique), so that all rows are worth the same; then no
    strategy loses fewer results either. What is kept is no sample: estimates cannot be made of it.

    Each part keeps the first of its rows, in proportion to how many it has, so that tasks stay as busy as each other.
    With ``whole_parts`` all are kept of the last parts, which are the youngest, and none of the others, so that these
    need not even be read; then parts must not be bound to tasks.

    MESH 4.1, Table 2: Many-to-One / MAX-SUBSET, "Keep w".

    >>> kept = KeepW().shed(StreamPart(5), 3, seed=0)
    >>> kept.mask.tolist()
    [True, True, True, False, False]
    """

    name = "keep_w"

    def __init__(self, *, whole_parts: bool = False) -> None:
        self._quotas = last_quotas if whole_parts else even_quotas

    def summarize(self, part: StreamPart) -> PartSummary:
        """How many rows there are."""
        return PartSummary.of_rows(part)

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        rows = batch.rows_in_parts()
        total, keep = sum(rows), min(require_rows(limit), sum(rows))
        quotas = self._quotas(rows, keep)
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
