"""A batch of stream tuples in the order of their codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.row_sizes import row_sizes
from semistream.kernels.sort import sort_codes
from semistream.kernels.types import Int32s, Int64s
from semistream.keys import CodeRanges


@dataclass(frozen=True)
class SortedBatch:
    """Tuples by position: first those that can match, in ascending order of their ``codes``, then the others."""

    batch: pa.RecordBatch
    codes: Int64s
    order: Int32s | Int64s

    @classmethod
    def of(cls, batch: pa.RecordBatch, ranges: CodeRanges) -> SortedBatch:
        """The tuples of a batch, each of which asks for one code."""
        if ranges.possible is None:
            codes, order = sort_codes(ranges.low)
            return cls(batch, codes, order)
        possible = np.flatnonzero(ranges.possible)
        codes, order = sort_codes(ranges.low[possible])
        return cls(batch, codes, np.concatenate([possible[order], np.flatnonzero(~ranges.possible)]))

    def rows(self, positions: Int64s) -> pa.RecordBatch:
        """Copies of some tuples, as a batch."""
        return self.batch.take(pa.array(self.order[positions]))

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copies of some tuples, one array per column."""
        batch = self.batch if columns is None else self.batch.select(columns)
        return list(batch.take(pa.array(self.order[positions])).columns)

    def row_bytes(self, positions: Int64s) -> Int64s:
        """Bytes of some tuples."""
        sizes: Int64s = row_sizes(self.batch)[self.order[positions]]
        return sizes
