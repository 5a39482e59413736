"""Builds result batches of bounded size, charged to the budget while they are made and handed out."""

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
"""Is told the run, and page and row of every pair whose code is asked for, before it is checked."""


class OutputSplit(Protocol):
    """What an emitter has of the budget."""

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch of results."""

    @property
    def check_bytes(self) -> int:
        """Bytes of pairs that are checked together."""


class StreamRows(Protocol):
    """Stream tuples in memory, named by position."""

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copies of some tuples, one array per column (all, or those asked for)."""

    def row_bytes(self, positions: Int64s) -> Int64s:
        """Bytes that `take` needs for each of them."""


@runtime_checkable
class ByteRows(StreamRows, Protocol):
    """Stream tuples whose strings can be compared as they stand."""

    def same_bytes(
        self, i: int, positions: Int64s, run: PageRun, column: ColumnLayout, page: Int32s, row: Int32s
    ) -> Bools | None:
        """For each pair, whether column ``i`` has the same bytes as a column of strings of R; None if all have."""


class Emitter:
    """Makes the results of one join, in batches of at most ``batch_bytes``, or of one row if that is larger.

    Pairs are staged run after run and come out when the staging is full or `emit` is called, so that many small runs
    make few batches. What is staged is charged to the budget until the consumer has asked for more. ``cached`` tells,
    for rows that are not R's pages but copies of some columns, where each column of R stands in them.
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
        self._payload_bytes = sum(c.fixed_bytes for c in spec.payload)  # at least
        self._least_row_bytes = _least_row_bytes(spec)
        self._capacity = self.capacity(spec, split)
        self._gatherer = RowGatherer(self._payload, self._capacity)
        self._positions: list[Int64s] = []
        self._staged_bytes = 0
        self.watcher: PairWatcher | None = None
        self.joined_watcher: PairWatcher | None = None

    @staticmethod
    def capacity(spec: JoinSpec, split: OutputSplit) -> int:
        """Results that a batch has, at most."""
        return max(split.batch_bytes // _least_row_bytes(spec), 1)

    def verified(
        self, stream: StreamRows, positions: Int64s, run: PageRun, page: Int32s, row: Int32s
    ) -> npt.NDArray[np.intp] | slice:
        """Which candidate pairs belong to the join: all of them, unless the condition has something left to check.

        What the check reads is gathered in pieces that fit the bytes reserved for it.
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
        """Take pairs of a stream tuple and an R-tuple; gives batches as the staging fills up."""
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
        """Bytes of each pair, or of all if they are alike."""
        if self._regular_payload and self._regular_stream:
            return self._least_row_bytes
        own = stream.row_bytes(positions)
        if self._regular_payload:
            return int(own[0]) + self._payload_bytes if own.strides == (0,) else own + self._payload_bytes
        return own + row_bytes(run, self._payload, page, row)

    def _fitting(self, sizes: Int64s | int, ends: Int64s | None, begin: int, end: int) -> tuple[int, int]:
        """How far the staging takes pairs from ``begin`` on, and their bytes; ``ends`` is None if all are alike."""
        room = self._batch_bytes - self._staged_bytes
        least = 0 if self._positions else 1  # a single row goes out however large it is
        most = min(end - begin, self._capacity - self._gatherer.rows)
        if ends is None:
            rows = min(most, max(room // int(sizes), least))
            return begin + rows, rows * int(sizes)
        before = int(ends[begin - 1]) if begin else 0
        fits = int(np.searchsorted(ends, before + room, "right"))
        end = max(min(fits, begin + most), begin + least)
        return end, (int(ends[end - 1]) if end else 0) - before

    def emit(self, stream: StreamRows) -> Iterator[pa.RecordBatch]:
        """Give out what is staged. It must be called before a staged tuple leaves ``stream``."""
        if not self._positions:
            return
        positions = self._positions[0] if len(self._positions) == 1 else np.concatenate(self._positions)
        self._positions = []
        columns = stream.take(positions) + self._gatherer.finish()
        yield pa.RecordBatch.from_arrays(columns, schema=self._spec.schema)
        self._budget.release("output", self._staged_bytes)
        self._staged_bytes = 0

    def finished(self, stream: StreamRows, batch: pa.RecordBatch, matched: Bools) -> Iterator[pa.RecordBatch]:
        """What is given out of stream tuples that have met all of R, after all that is staged: the unmatched of a left
        or anti join, the matched of a semi join. Nulls stand in the relation's columns, if they come out.
        """
        yield from self.emit(stream)
        rows = self._alone(matched)
        if rows.size:
            yield from self._unpaired(rows, row_sizes(batch)[rows], lambda some: batch.take(pa.array(some)).columns)

    def finished_tuples(self, stream: StreamRows, positions: Int64s, matched: Bools) -> Iterator[pa.RecordBatch]:
        """Like `finished`, of tuples that stand anywhere; what is staged stays so if none of them comes out."""
        positions = positions[self._alone(matched)]
        if positions.size:
            yield from self.emit(stream)
            yield from self._unpaired(positions, stream.row_bytes(positions), stream.take)

    def _alone(self, matched: Bools) -> npt.NDArray[np.intp]:
        """Which finished tuples come out without a partner."""
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
    """Bytes of a result, but for what its strings have."""
    return spec.row_bytes + sum(column.fixed_bytes for column in spec.payload)
