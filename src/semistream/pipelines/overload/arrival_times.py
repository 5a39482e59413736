"""ArrivedRows: of rows that enter a batch under a goal for latency, when they came, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from semistream.pipelines.steps.row_flags import Bools, Numbers
from semistream.shedding import SAMPLE_COLUMNS, Kept, SampleDesign

CARRIED_SAMPLE = pa.schema([field.with_nullable(True) for field in SAMPLE_COLUMNS])
"""The columns that weighted rows carry through the steps."""


@dataclass(frozen=True)
class ArrivedTogether:
    """So many ``rows`` that came at the same time, none of which is shed or carries weights: nothing tells them apart.

    It has what is asked of `ArrivedRows` of such rows, in no time.
    """

    rows: int
    came_ms: int
    kept: ClassVar[None] = None

    def slice(self, begin: int, rows: int) -> ArrivedTogether:
        """That of rows that follow each other."""
        return replace(self, rows=max(min(rows, self.rows - begin), 0))

    def where(self, mask: Bools) -> ArrivedTogether:
        """That of some of the rows."""
        return replace(self, rows=int(np.count_nonzero(mask)))

    def by_arrival(self, tick_ms: int) -> dict[str, int]:
        """How many rows came in each stretch of ``tick_ms``, by its number.

        >>> ArrivedTogether(3, 250).by_arrival(100)
        {'2': 3}
        """
        return {str(self.came_ms // tick_ms): self.rows} if self.rows else {}


@dataclass(frozen=True)
class ArrivedRows:
    """For each of some rows when it came (milliseconds) and its number in the batch, and if rows are shed, the fate.

    Rows that are ``repaired`` were shed before: they are late on purpose, and stand for nothing in a sample.
    """

    came_ms: Numbers
    ids: Numbers
    kept: Kept | None = None
    repaired: bool = False

    def slice(self, begin: int, rows: int) -> ArrivedRows:
        """That of rows that follow each other."""
        end = begin + rows
        kept = None if self.kept is None else self.kept.slice(begin, rows)
        return replace(self, came_ms=self.came_ms[begin:end], ids=self.ids[begin:end], kept=kept)

    def where(self, mask: Bools) -> ArrivedRows:
        """That of some of the rows."""
        kept = None if self.kept is None else Kept(self.kept.mask[mask], self.kept.inclusion[mask])
        return replace(self, came_ms=self.came_ms[mask], ids=self.ids[mask], kept=kept)

    def by_arrival(self, tick_ms: int) -> dict[str, int]:
        """How many rows came in each stretch of ``tick_ms``, by its number; of rows that are repaired nothing.

        >>> ArrivedRows(np.array([0, 90, 250]), np.arange(3)).by_arrival(100)
        {'0': 2, '2': 1}
        """
        if self.repaired:
            return {}
        ticks, rows = np.unique(self.came_ms // tick_ms, return_counts=True)
        return {str(tick): int(n) for tick, n in zip(ticks.tolist(), rows.tolist(), strict=True)}

    def sample_columns(self, batch: int, design: SampleDesign | None) -> list[pa.Array]:
        """The columns of `CARRIED_SAMPLE`: rows of a batch that nothing was shed of stand for themselves.

        Repaired rows have weight 0: the rows of their batch that were kept stand for them in estimates.
        """
        n = self.ids.size
        for_itself = np.zeros(n) if self.repaired else np.ones(n)
        weights = for_itself if self.kept is None else 1 / self.kept.inclusion
        design = SampleDesign(0, 0.0) if design is None or self.repaired else design
        values = [np.full(n, batch, np.int64), self.ids, np.full(n, design.drawn), np.full(n, design.spread)]
        return [pa.array(each, field.type) for each, field in zip([weights, *values], CARRIED_SAMPLE, strict=True)]


Arrived = ArrivedRows | ArrivedTogether
