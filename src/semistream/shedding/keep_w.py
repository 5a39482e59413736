"""KeepW: as many rows as there is time for, whichever they are."""

from __future__ import annotations

from collections.abc import Sequence

from semistream.shedding.equal_rows import EqualRows
from semistream.shedding.quotas import even_quotas, last_quotas


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
