"""ArrivedRows: arrival times of the rows of a batch under a latency goal, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from semistream.kernels.array_types import Bools, Int64s
from semistream.shedding import SAMPLE_COLUMNS, Kept, SampleDesign

CARRIED_SAMPLE = pa.schema([field.with_nullable(True) for field in SAMPLE_COLUMNS])
"""Columns that weighted rows carry through the steps."""


@dataclass(frozen=True)
class ArrivedTogether:
    """Rows that came at the same time, none of them shed or weighted.

    It stands in for `ArrivedRows`, without any arrays.
    """

    rows: int
    came_ms: int
    kept: ClassVar[None] = None

    def slice(self, begin: int, rows: int) -> ArrivedTogether:
        """Return the part for ``rows`` consecutive rows from ``begin`` on."""
        return replace(self, rows=max(min(rows, self.rows - begin), 0))

    def where(self, mask: Bools) -> ArrivedTogether:
        """Return the part for the rows of a mask."""
        return replace(self, rows=int(np.count_nonzero(mask)))

    def by_arrival(self, tick_ms: int) -> dict[str, int]:
        """Return the number of rows that came in each interval of ``tick_ms``, by the number of the interval.

        >>> ArrivedTogether(3, 250).by_arrival(100)
        {'2': 3}
        """
        return {str(self.came_ms // tick_ms): self.rows} if self.rows else {}


@dataclass(frozen=True)
class ArrivedRows:
    """Arrival time (milliseconds) and number in the batch of each row and, if rows are shed, which are ``kept``.

    ``repaired`` rows were shed before: they are late on purpose, and have no weight in a sample.
    """

    came_ms: Int64s
    ids: Int64s
    kept: Kept | None = None
    repaired: bool = False

    def slice(self, begin: int, rows: int) -> ArrivedRows:
        """Return the part for ``rows`` consecutive rows from ``begin`` on."""
        end = begin + rows
        kept = None if self.kept is None else self.kept.slice(begin, rows)
        return replace(self, came_ms=self.came_ms[begin:end], ids=self.ids[begin:end], kept=kept)

    def where(self, mask: Bools) -> ArrivedRows:
        """Return the part for the rows of a mask."""
        kept = None if self.kept is None else Kept(self.kept.mask[mask], self.kept.inclusion[mask])
        return replace(self, came_ms=self.came_ms[mask], ids=self.ids[mask], kept=kept)

    def by_arrival(self, tick_ms: int) -> dict[str, int]:
        """Return the number of rows that came in each interval of ``tick_ms``, by its number; none if repaired.

        >>> ArrivedRows(np.array([0, 90, 250]), np.arange(3)).by_arrival(100)
        {'0': 2, '2': 1}
        """
        if self.repaired:
            return {}
        ticks, rows = np.unique(self.came_ms // tick_ms, return_counts=True)
        return {str(tick): int(n) for tick, n in zip(ticks.tolist(), rows.tolist(), strict=True)}

    def sample_columns(self, batch: int, design: SampleDesign | None) -> list[pa.Array]:
        """Return the columns of `CARRIED_SAMPLE`; rows of a batch without shedding have weight 1.

        Repaired rows have weight 0: in estimates, the kept rows of their batch already represent them.
        """
        n = self.ids.size
        for_itself = np.zeros(n) if self.repaired else np.ones(n)
        weights = for_itself if self.kept is None else 1 / self.kept.inclusion
        design = SampleDesign(0, 0.0) if design is None or self.repaired else design
        values = [np.full(n, batch, np.int64), self.ids, np.full(n, design.drawn), np.full(n, design.spread)]
        return [pa.array(each, field.type) for each, field in zip([weights, *values], CARRIED_SAMPLE, strict=True)]


Arrived = ArrivedRows | ArrivedTogether
