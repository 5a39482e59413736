"""EqualRows: what strategies have in common to which every row is worth the same."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from semistream.shedding.cut_decision import Cut, CutDecision
from semistream.shedding.decision import Account, Decision, SampleDesign
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary


class EqualRows(Strategy):
    """Keeps exactly ``min(w, rows)`` rows; a subclass says how many of each part, and whether they are a sample.

    A sample is drawn by the ranks of rows, and each row is in it with probability w / rows; else the first rows of each
    part are kept.
    """

    def summarize(self, part: StreamPart) -> PartSummary:
        """How many rows there are."""
        return PartSummary.of_rows(part)

    @abstractmethod
    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
        """How many of each part's ``rows`` are kept, ``keep`` in all."""

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        rows = batch.rows_in_parts()
        total = sum(rows)
        keep = min(require_rows(limit), total)
        quotas = self._quotas(rows, keep, seed)
        return CutDecision(
            strategy=self.name,
            seed=seed,
            parts=batch.numbers,
            rows=rows,
            kept=quotas,
            results=None,
            account=Account(keep, total - keep, keep, total - keep),
            design=SampleDesign(keep, keep * (1 - keep / total) if total else 0.0) if self.is_sample else None,
            cuts=(Cut(0, total, quotas),),
            by_chance=self.is_sample,
            counts_matches=False,
        )
