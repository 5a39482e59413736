"""SampleW: a uniform sample of the rows, without replacement."""

from __future__ import annotations

from semistream.shedding.cut_decision import Cut, CutDecision
from semistream.shedding.decision import Account, Decision, SampleDesign
from semistream.shedding.quotas import chance_quotas
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary


class SampleW(Strategy):
    """Keeps a uniform sample of exactly ``min(w, rows)`` rows: every set of that many is as likely as every other.

    Each row is kept with probability w / rows. Where each row gives one result (keys of R are unique), the results are
    a uniform sample of all results; where it does not, they are a sample of clusters, the results of a row, all as
    likely as each other, and estimates still hold.

    How many rows each part keeps is drawn for all parts together (see `chance_quotas`), and which, by their ranks.

    MESH 4.1, Table 2: Many-to-One / RANDOM-SAMPLE, "Sample w".

    >>> kept = SampleW().shed(StreamPart(1000), 250, seed=7)
    >>> kept.rows, set(kept.inclusion.tolist())
    (250, {0.25})
    """

    name = "sample_w"
    is_sample = True

    def summarize(self, part: StreamPart) -> PartSummary:
        """How many rows there are."""
        return PartSummary.of_rows(part)

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        rows = batch.rows_in_parts()
        total, keep = sum(rows), min(require_rows(limit), sum(rows))
        quotas = chance_quotas(rows, keep, seed)
        return CutDecision(
            strategy=self.name,
            seed=seed,
            parts=batch.numbers,
            rows=rows,
            kept=quotas,
            results=None,
            account=Account(keep, total - keep, keep, total - keep),
            design=SampleDesign(keep, keep * (1 - keep / total) if total else 0.0),
            cuts=(Cut(0, total, quotas),),
            by_chance=True,
            counts_matches=False,
        )
