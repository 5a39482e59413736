"""SampleW: a uniform sample of the rows, without replacement."""

from __future__ import annotations

from collections.abc import Sequence

from semistream.shedding.equal_rows import EqualRows
from semistream.shedding.quotas import chance_quotas


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
