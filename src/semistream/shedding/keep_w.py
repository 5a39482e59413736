"""KeepW: as many rows as there is time for, those that came first."""

from __future__ import annotations

from collections.abc import Sequence

from semistream.shedding.equal_rows import EqualRows
from semistream.shedding.quotas import even_quotas


class KeepW(EqualRows):
    """Keeps exactly ``min(w, rows)`` rows: no strategy that joins at most ``w`` rows loses fewer.

    For joins where each row gives one result (keys of R are unique), so that all rows are worth the same; then no
    strategy loses fewer results either. Each part keeps the first of its rows, in proportion to how many it has, so
    that tasks stay as busy as each other. What is kept is no sample: estimates cannot be made of it.

    MESH 4.1, Table 2: Many-to-One / MAX-SUBSET, "Keep w".

    >>> from semistream.shedding import StreamPart
    >>> kept = KeepW().shed(StreamPart(5), 3, seed=0)
    >>> kept.mask.tolist()
    [True, True, True, False, False]
    """

    name = "keep_w"

    def _quotas(self, rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:  # noqa: ARG002
        return even_quotas(rows, keep)
