"""Emitter: builds result batches of bounded size, charged to the budget until they are consumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.condition.pair_check import PairCheck
from semistream.joins.condition.spec import JoinSpec
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.kernels.page_cuts import cut_pages
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.format.row_sizes import fixed_row_bytes, is_regular, row_sizes
from semistream.relation.read.row_gatherer import RowGatherer, row_bytes

PairWatcher = Callable[[PageRun, Int32s, Int32s], None]
"""Called with a run and the page and row of each pair found in it."""


class OutputSplit(Protocol):
    """An emitter's parts of the budget."""

    @property
    def batch_bytes(self) -> int:
        """Most bytes of a batch of results."""

    @property
    def check_bytes(self) -> int:
        """Most bytes of the pairs checked together."""


class StreamRows(Protocol):
    """Stream tuples in memory, identified by position."""

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copy some tuples, one array per column; ``columns`` None means all."""

    def row_bytes(self, positions: Int64s) -> Int64s:
        """Return the bytes that `take` needs for each tuple."""


@runtime_checkable
class ByteRows(StreamRows, Protocol):
    """Stream tuples whose strings can be compared in place."""

    def same_bytes(
        self, i: int, positions: Int64s, run: PageRun, column: ColumnLayout, page: Int32s, row: Int32s
    ) -> Bools | None:
        """Compare column ``i`` with a string column of R, pair by pair; return None if all pairs are equal."""


class Emitter:
    """Builds the results of one join, in batches of at most ``batch_bytes``, or of a single wider row.

    Pairs are staged run after run and come out when the staging is full or `emit` is called, so many small runs make
    few batches. Staged bytes stay charged to the budget until the consumer asks for more. If rows come from copies of
    some columns instead of R's pages, ``cached`` maps each column of R to its layout there.
    """

    def __init__(
        self,
        spec: JoinSpec,
        split: OutputSplit,
        budget: MemoryBudget,
        *,
        cached: Mapping[ColumnLayout, ColumnLayout] | None = None,
    ) -> None:
        self._spec = spec
        self._payload = spec.payload
        self._check_columns = spec.condition.check.relation_columns if spec.condition.check else ()
        if cached is not None:
            self._payload = tuple(cached[column] for column in self._payload)
            self._check_columns = tuple(cached[column] for column in self._check_columns)
        self._budget = budget
        self._batch_bytes = split.batch_bytes
        self._check_bytes = split.check_bytes
        self._null_bytes = fixed_row_bytes(pa.schema([pa.field(c.name, c.type) for c in spec.payload]))
        self._regular_stream = is_regular(spec.stream_schema)
        self._regular_payload = all(c.kind in ("fixed", "bits") for c in spec.payload)
        self._payload_bytes = sum(c.fixed_bytes for c in spec.payload)  # without the bytes of strings
        self._least_row_bytes = _least_row_bytes(spec)
        self._capacity = self.capacity(spec, split)
        self._gatherer = RowGatherer(self._payload, self._capacity)
        self._positions: list[Int64s] = []
        self._staged_bytes = 0
        self.watcher: PairWatcher | None = None
        self.joined_watcher: PairWatcher | None = None

    @staticmethod
    def capacity(spec: JoinSpec, split: OutputSplit) -> int:
        """Return the most results in a batch."""
        return max(split.batch_bytes // _least_row_bytes(spec), 1)

    def verified(
        self, stream: StreamRows, positions: Int64s, run: PageRun, page: Int32s, row: Int32s
    ) -> npt.NDArray[np.intp] | slice:
        """Return the candidate pairs that belong to the join: all, unless the condition has a check left.

        The values that the check reads are gathered in pieces that fit in the bytes reserved for it.
        """
        if self.watcher is not None:
            self.watcher(run, page, row)
        check = self._spec.condition.check
        if check is None or positions.size == 0:
            return slice(None)
        if check.same_bytes and isinstance(stream, ByteRows):
            pairs = positions, run, self._check_columns[0], page, row
            same = stream.same_bytes(check.stream_columns[0], *pairs)
            return slice(None) if same is None else np.flatnonzero(same)
        pieces = []
        for begin, end in self._check_pieces(check, stream, positions, run, page, row):
            left = stream.take(positions[begin:end], list(check.stream_columns)) if check.stream_columns else []
            right = run.gather(self._check_columns, page[begin:end], row[begin:end])
            pieces.append(begin + np.flatnonzero(check.holds(left, right)))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _check_pieces(
        self, check: PairCheck, stream: StreamRows, positions: Int64s, run: PageRun, page: Int32s, row: Int32s
    ) -> Iterator[tuple[int, int]]:
        left, right = check.left_bytes, check.right_bytes
        if left is not None and right is not None:
            step = max(self._check_bytes // check.pair_bytes(left + right), 1)
            cuts = list(range(0, positions.size, step))
        else:
            sizes = stream.row_bytes(positions) if left is None else np.full(positions.size, left)
            sizes = sizes + (row_bytes(run, self._check_columns, page, row) if right is None else right)
            cuts = cut_pages(np.cumsum(check.pair_bytes(sizes)), self._check_bytes).tolist()
        return pairwise([*cuts, positions.size])

    def stage(
        self, stream: StreamRows, positions: Int64s, run: PageRun, page: Int32s, row: Int32s
    ) -> Iterator[pa.RecordBatch]:
        """Stage pairs of a stream tuple and an R-tuple, yielding batches as the staging fills up."""
        if not positions.size:
            return
        if self.joined_watcher is not None:
            self.joined_watcher(run, page, row)
        sizes = self._sizes(stream, positions, run, page, row)
        ends = None if isinstance(sizes, int) else np.cumsum(sizes)
        begin = 0
        while begin < positions.size:
            end, nbytes = self._fitting(sizes, ends, begin, positions.size)
            if end == begin:
                yield from self.emit(stream)
                continue
            self._budget.charge("output", nbytes)
            self._staged_bytes += nbytes
            some = slice(begin, end)
            self._positions.append(positions[some].copy())
            self._gatherer.append(run, page[some], row[some])
            begin = end

    def _sizes(self, stream: StreamRows, positions: Int64s, run: PageRun, page: Int32s, row: Int32s) -> Int64s | int:
        """Return the bytes of each pair, or one number if all are equal."""
        if self._regular_payload and self._regular_stream:
            return self._least_row_bytes
        own = stream.row_bytes(positions)
        if self._regular_payload:
            return int(own[0]) + self._payload_bytes if own.strides == (0,) else own + self._payload_bytes
        return own + row_bytes(run, self._payload, page, row)

    def _fitting(self, sizes: Int64s | int, ends: Int64s | None, begin: int, end: int) -> tuple[int, int]:
        """Return the end of the pairs from ``begin`` that fit, and their bytes; ``ends`` is None if all are equal."""
        room = self._batch_bytes - self._staged_bytes
        least = 0 if self._positions else 1  # an empty staging takes one row of any size
        most = min(end - begin, self._capacity - self._gatherer.rows)
        if ends is None:
            rows = min(most, max(room // int(sizes), least))
            return begin + rows, rows * int(sizes)
        before = int(ends[begin - 1]) if begin else 0
        fits = int(np.searchsorted(ends, before + room, "right"))
        end = max(min(fits, begin + most), begin + least)
        return end, (int(ends[end - 1]) if end else 0) - before

    def emit(self, stream: StreamRows) -> Iterator[pa.RecordBatch]:
        """Yield the staged results; call it before a staged tuple leaves ``stream``."""
        if not self._positions:
            return
        positions = self._positions[0] if len(self._positions) == 1 else np.concatenate(self._positions)
        self._positions = []
        columns = stream.take(positions) + self._gatherer.finish()
        yield pa.RecordBatch.from_arrays(columns, schema=self._spec.schema)
        self._budget.release("output", self._staged_bytes)
        self._staged_bytes = 0

    def finished(self, stream: StreamRows, batch: pa.RecordBatch, matched: Bools) -> Iterator[pa.RecordBatch]:
        """Yield the staged results, then the unpaired results of stream tuples that have met all of R.

        These are the unmatched tuples of a left or anti join, and the matched tuples of a semi join. In a left join the
        relation's columns are null.
        """
        yield from self.emit(stream)
        rows = self._alone(matched)
        if rows.size:
            yield from self._unpaired(rows, row_sizes(batch)[rows], lambda some: batch.take(pa.array(some)).columns)

    def finished_tuples(self, stream: StreamRows, positions: Int64s, matched: Bools) -> Iterator[pa.RecordBatch]:
        """Do as `finished` for tuples at any positions; keep the staged results if no tuple comes out unpaired."""
        positions = positions[self._alone(matched)]
        if positions.size:
            yield from self.emit(stream)
            yield from self._unpaired(positions, stream.row_bytes(positions), stream.take)

    def _alone(self, matched: Bools) -> npt.NDArray[np.intp]:
        """Return the finished tuples that come out unpaired."""
        if self._spec.how == "inner":
            return np.empty(0, np.intp)
        return np.flatnonzero(matched if self._spec.how == "semi" else ~matched)

    def _unpaired(
        self, tuples: Int64s, sizes: Int64s, take: Callable[[Int64s], list[pa.Array]]
    ) -> Iterator[pa.RecordBatch]:
        ends = np.cumsum(sizes + self._null_bytes)
        for begin, end in pairwise([*cut_pages(ends, self._batch_bytes).tolist(), tuples.size]):
            nbytes = int(ends[end - 1]) - (int(ends[begin - 1]) if begin else 0)
            with self._budget.charged("output", nbytes):
                right = [pa.nulls(end - begin, column.type) for column in self._spec.payload]
                yield pa.RecordBatch.from_arrays(take(tuples[begin:end]) + right, schema=self._spec.schema)


def _least_row_bytes(spec: JoinSpec) -> int:
    """Return the bytes of a result, without those of its strings."""
    return spec.row_bytes + sum(column.fixed_bytes for column in spec.payload)
