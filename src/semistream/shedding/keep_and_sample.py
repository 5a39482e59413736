"""Strategies that value all rows alike: KeepW keeps any w rows, SampleW a uniform sample without replacement."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from semistream.shedding.decision import Account, Cut, CutDecision, Decision, SampleDesign
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary, chance_quotas, even_quotas, last_quotas


class EqualRows(Strategy):
    """Base of strategies that keep exactly ``min(w, rows)`` rows, and value all rows alike.

    A subclass defines the quota of each part, and if the kept rows are a sample. A sample is drawn by the ranks of
    rows, with probability w / rows for each; otherwise the first rows of each part are kept.
    """

    def summarize(self, part: StreamPart) -> PartSummary:
        """Count the rows."""
        return PartSummary.of_rows(part)

    @abstractmethod
    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
        """Return how many of each part's ``rows`` to keep, ``keep`` in total."""

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
    """Strategy that keeps exactly ``min(w, rows)`` rows: none that joins at most ``w`` rows loses fewer.

    ``w`` is the limit given to `decide` and `shed`, in rows. Use this strategy for joins where each row gives one
    result (keys of R are unique), so that all rows have the same value; then no strategy loses fewer results either.
    The kept rows are not a sample, and do not support estimates.

    Parameters
    ----------
    whole_parts : bool
        False (the default): each part keeps its first rows, in proportion to its size, which balances the load of
        tasks. True: the last and youngest parts keep all of their rows and the others none, so that these need not even
        be read; parts must then not be bound to tasks.

    Examples
    --------
    >>> from semistream.shedding import StreamPart
    >>> kept = KeepW().shed(StreamPart(5), 3, seed=0)
    >>> kept.mask.tolist()
    [True, True, True, False, False]

    References
    ----------
    MESH 4.1, Table 2: Many-to-One / MAX-SUBSET, "Keep w".
    """

    name = "keep_w"

    def __init__(self, *, whole_parts: bool = False) -> None:
        self._shared_out = last_quotas if whole_parts else even_quotas

    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:  # noqa: ARG002
        return self._shared_out(rows, keep)


class SampleW(EqualRows):
    """Strategy that keeps a uniform sample of exactly ``min(w, rows)`` rows: every set of that size is equally likely.

    ``w`` is the limit given to `decide` and `shed`, in rows. Each row is kept with probability w / rows. Where each row
    gives one result (keys of R are unique), the results are a uniform sample of all results. Otherwise they are a
    sample of clusters, the results of a row, all equally likely, and estimates still hold.

    The quotas of the parts are drawn together (see `chance_quotas`); ranks then select the rows within each part.

    Examples
    --------
    >>> from semistream.shedding import StreamPart
    >>> kept = SampleW().shed(StreamPart(1000), 250, seed=7)
    >>> kept.rows, set(kept.inclusion.tolist())
    (250, {0.25})

    References
    ----------
    MESH 4.1, Table 2: Many-to-One / RANDOM-SAMPLE, "Sample w".
    """

    name = "sample_w"
    is_sample = True

    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
        return chance_quotas(rows, keep, seed)
