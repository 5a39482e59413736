"""Builds result batches of bounded size, charged to the budget while they are made and handed out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.row_sizes import fixed_row_bytes, row_sizes
from semistream.joins.spec import JoinSpec
from semistream.kernels.page_cuts import cut_pages
from semistream.kernels.types import Bools, Int32s, Int64s
from semistream.keys import KeyCodec
from semistream.relation import PageRun


class StreamRows(Protocol):
    """Stream tuples in memory, named by position."""

    def take(self, positions: Int32s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copies of some tuples, one array per column (all, or those asked for)."""

    def row_bytes(self, positions: Int32s) -> Int64s:
        """Bytes that `take` needs for each of them."""


class Emitter:
    """Makes the results of one join. A batch has at most ``staging_bytes`` (a single row may not be larger)."""

    def __init__(self, spec: JoinSpec, codec: KeyCodec, budget: MemoryBudget, staging_bytes: int) -> None:
        self._spec = spec
        self._codec = codec
        self._budget = budget
        self._staging_bytes = staging_bytes
        self._key_positions = [spec.stream_schema.get_field_index(name) for name in spec.stream_keys]
        self._null_bytes = fixed_row_bytes(pa.schema([pa.field(c.name, c.type) for c in spec.payload]))

    def verified(
        self, stream: StreamRows, positions: Int32s, run: PageRun, page: Int32s, row: Int32s
    ) -> npt.NDArray[np.intp] | slice:
        """Which of the pairs with equal codes have equal keys: all of them, unless codes are hashes."""
        if self._codec.ordered:
            return slice(None)
        left = stream.take(positions, self._key_positions)
        return np.flatnonzero(self._codec.equal(left, run.gather(self._spec.key_columns, page, row)))

    def joined(
        self, stream: StreamRows, positions: Int32s, run: PageRun, page: Int32s, row: Int32s
    ) -> Iterator[pa.RecordBatch]:
        """Pairs of a stream tuple and an R-tuple."""
        sizes = stream.row_bytes(positions) + run.row_bytes(self._spec.payload, page, row)
        for begin, end, nbytes in self._pieces(sizes):
            with self._budget.charged("output", nbytes):
                left = stream.take(positions[begin:end])
                right = run.gather(self._spec.payload, page[begin:end], row[begin:end])
                yield pa.RecordBatch.from_arrays(left + right, schema=self._spec.schema)

    def finished(self, batch: pa.RecordBatch, matched: Bools) -> Iterator[pa.RecordBatch]:
        """What is given out of stream tuples that have met all of R: the unmatched of a left or anti join, and the
        matched of a semi join. Nulls stand in the relation's columns, if they come out.
        """
        if self._spec.how == "inner":
            return
        rows = np.flatnonzero(matched if self._spec.how == "semi" else ~matched)
        for begin, end, nbytes in self._pieces(row_sizes(batch)[rows] + self._null_bytes):
            with self._budget.charged("output", nbytes):
                left = batch.take(pa.array(rows[begin:end])).columns
                right = [pa.nulls(end - begin, column.type) for column in self._spec.payload]
                yield pa.RecordBatch.from_arrays(left + right, schema=self._spec.schema)

    def _pieces(self, sizes: Int64s) -> Iterator[tuple[int, int, int]]:
        if sizes.size == 0:
            return
        ends = np.cumsum(sizes)
        cuts = [*cut_pages(ends, self._staging_bytes).tolist(), sizes.size]
        for begin, end in pairwise(cuts):
            yield begin, end, int(ends[end - 1] - (ends[begin - 1] if begin else 0))
