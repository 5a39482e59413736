"""KeepW: as many rows as there is time for, whichever they are.

SampleW: a uniform sample of the rows, without replacement.

EqualRows: what strategies have in common to which every row is worth the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from semistream.shedding.decision import Account, Cut, CutDecision, Decision, SampleDesign
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary, chance_quotas, even_quotas, last_quotas


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


class KeepW(EqualRows):
    """Keeps exactly ``min(w, rows)`` rows: no strategy that joins at most ``w`` rows loses fewer.

    For joins where each row gives one result (keys of R are unique), so that all rows are worth the same; then no
    strategy loses fewer results either. What is kept is no sample: estimates cannot be made of it.

    Each part keeps the first of its rows, in proportion to how many it has, so that tasks stay as busy as each other.
    With ``whole_parts`` all are kept of the last parts, which are the youngest, and none of the others, so that these
    need not even be read; then parts must not be bound to tasks.

    MESH 4.1, Table 2: Many-to-One / MAX-SUBSET, "Keep w".

    >>> from semistream.shedding import StreamPart
    >>> kept = KeepW().shed(StreamPart(5), 3, seed=0)
    >>> kept.mask.tolist()
    [True, True, True, False, False]
    """

    name = "keep_w"

    def __init__(self, *, whole_parts: bool = False) -> None:
        self._shared_out = last_quotas if whole_parts else even_quotas

    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:  # noqa: ARG002
        return self._shared_out(rows, keep)


class SampleW(EqualRows):
    """Keeps a uniform sample of exactly ``min(w, rows)`` rows: every set of that many is as likely as every other.

    Each row is kept with probability w / rows. Where each row gives one result (keys of R are unique), the results are
    a uniform sample of all results; where it does not, they are a sample of clusters, the results of a row, all as
    likely as each other, and estimates still hold.

    How many rows each part keeps is drawn for all parts together (see `chance_quotas`), and which, by their ranks.

    MESH 4.1, Table 2: Many-to-One / RANDOM-SAMPLE, "Sample w".

    >>> from semistream.shedding import StreamPart
    >>> kept = SampleW().shed(StreamPart(1000), 250, seed=7)
    >>> kept.rows, set(kept.inclusion.tolist())
    (250, {0.25})
    """

    name = "sample_w"
    is_sample = True

    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
        return chance_quotas(rows, keep, seed)
