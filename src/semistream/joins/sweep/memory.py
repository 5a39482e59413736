"""How a sweep lays out its memory: runs of pages, levels of stream tuples, small batches, and output.

SmallBatches: holds batches of the stream that are too small to be worth a level of their own.

WaitingRows: how many bytes a stream tuple takes while it waits for a sweep, as far as a sample tells.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.parts.memory_split import MemorySplit, Shares, expected_row_bytes
from semistream.joins.sweep.kernels.pack import value_span
from semistream.joins.sweep.levels import NARROW
from semistream.joins.sweep.packing import PackedColumn, PackedValues, is_packable
from semistream.joins.sweep.route import PageSweep
from semistream.joins.sweep.stream_buffer import StreamBuffer
from semistream.relation import Relation

_RUNS = 3  # that are read ahead or joined at once
_SCARCE_PAGES = 48  # of R: with less memory one run is read at a time, so that little is enough
_RUNS_SHARE = 4  # one part in so many of the memory is for runs
_LEAST_RUN_BYTES = 640 << 10  # rather than shorter runs there are fewer
_SHARES = Shares(most_run_bytes=4 << 20, matches=32, staging=24, least_staging=16, admit=9)
_HASH_SHIFT = 32  # bits of a hash that are not stored: pairs are checked anyway
_ADMIT_IN_PLACE = 24  # bytes to sort a tuple whose code is a column of the stream
_BATCH_BYTES = 8 << 20  # of a batch of results, if that much is kept for them: the larger, the fewer steps
_SMALL = 10  # one part in so many of what tuples have, at most, is for batches that wait for others
_LEAST_ROWS = 256  # of a level, for which it is worth it that smaller batches wait for others
_LEVELS = 4  # at least; but the fewer and larger they are, the faster they are joined


@dataclass(frozen=True)
class StoredCodes:
    """How the codes of waiting tuples are stored: as the stream's ``column`` that they are, if there is one, and
    without their lowest ``shift`` bits.
    """

    column: int | None
    shift: int

    @classmethod
    def of(cls, relation: Relation, spec: JoinSpec) -> StoredCodes:
        """How those of a join are."""
        condition, codec, schema = spec.condition, relation.codec, spec.stream_schema
        shift = _HASH_SHIFT if condition.single_codes and not codec.ordered else 0
        if condition.access != "equality" or not codec.in_place_code:
            return cls(None, shift)
        column = schema.get_field_index(condition.stream_keys[0])
        return cls(column if schema.types[column] == codec.types[0] else None, shift)


@dataclass(frozen=True)
class SweepMemory:
    """The parts of a sweep's memory, all charged: ``runs`` of pages, and ``buffer_bytes`` for tuples that wait in
    levels of up to ``level_rows``; of smaller batches up to ``small_rows`` wait for others in ``small_bytes``.
    """

    split: MemorySplit
    runs: int
    codes: StoredCodes
    level_rows: int
    small_rows: int
    small_bytes: int
    buffer_bytes: int

    @classmethod
    def of(cls, budget: MemoryBudget, relation: Relation, spec: JoinSpec, *, purpose: str) -> SweepMemory:
        """Lay out ``budget``, of which nothing may be in use."""
        schema, codes = spec.stream_schema, StoredCodes.of(relation, spec)
        index_bytes = partial(
            StreamBuffer.index_bytes,
            code_stored=codes.column is not None,
            single_codes=spec.condition.single_codes,
            code_shift=codes.shift,
        )
        split_into = partial(
            MemorySplit.of,
            budget,
            relation,
            spec,
            purpose=purpose,
            index_bytes=relation.table.memory_bytes + PageSweep.memory_bytes(relation.num_pages),
            slots_bytes=index_bytes,
        )
        shares = replace(_SHARES, admit_bytes=None if codes.column is None else _ADMIT_IN_PLACE)
        split, runs = _split(split_into, shares, budget.limit, relation.largest_page)
        row_bytes, unpacked_bytes = _row_bytes(schema)
        packed_bytes = split.payload_bytes * (row_bytes - unpacked_bytes) // row_bytes
        level_rows = max(min(split.admit_rows, split.slots // _LEVELS), 1)
        small_rows = level_rows - 1 if level_rows >= _LEAST_ROWS else 0
        small_bytes = min(small_rows * row_bytes, packed_bytes // _SMALL)
        budget.charge("stream buffer", packed_bytes)
        return cls(
            split=replace(split, batch_bytes=min(split.staging_bytes, _BATCH_BYTES)),
            runs=runs,
            codes=codes,
            level_rows=level_rows,
            small_rows=small_rows,
            small_bytes=small_bytes,
            buffer_bytes=packed_bytes + index_bytes(split.slots) - small_bytes,  # the index is charged for
        )


def _split(split_into: partial[MemorySplit], shares: Shares, limit: int, largest_page: int) -> tuple[MemorySplit, int]:
    """The parts of the budget, and how many runs are held: one if there is not enough for more."""
    if limit >= _SCARCE_PAGES * largest_page:
        runs = min(_RUNS, max(limit // _RUNS_SHARE // _LEAST_RUN_BYTES, 2))
        with suppress(BudgetError):
            return split_into(run_buffers=runs, shares=replace(shares, run=_RUNS_SHARE * runs)), runs
    return split_into(run_buffers=1, shares=shares), 1


def _row_bytes(schema: pa.Schema) -> tuple[int, int]:
    """Bytes expected of a stream row, and of its columns that cannot be packed."""
    return expected_row_bytes(schema), expected_row_bytes(StreamBuffer.unpacked_columns(schema))


class SmallBatches:
    """Batches that wait for others, up to ``rows`` in all and ``nbytes``."""

    def __init__(self, rows: int, nbytes: int) -> None:
        self._most_rows = rows
        self._most_bytes = nbytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Hold a copy of a batch, if there is room for it."""
        nbytes = batch.nbytes + batch.num_columns * 8  # rounded up
        if self.rows + batch.num_rows > self._most_rows or self._bytes + nbytes > self._most_bytes:
            return False
        self._batches.append(pa.concat_batches([batch, batch.slice(0, 0)]))  # not the larger one that it may be of
        self._bytes += nbytes
        self.rows += batch.num_rows
        return True

    def take(self, more: pa.RecordBatch | None = None) -> pa.RecordBatch | None:
        """All that is held, and ``more`` behind it, as one batch; None if that is nothing."""
        batches = self._batches if more is None else [*self._batches, more]
        self._batches, self._bytes, self.rows = [], 0, 0
        return pa.concat_batches(batches) if len(batches) > 1 else next(iter(batches), None)


_GROWS = 1.5  # times the span of half of a sample, from which that of all shows that values count on


@dataclass(frozen=True)
class WaitingRows:
    """Bytes of a tuple in a level of ``level_rows``, by how many tuples of the stream there are for each that waits.

    ``row_bytes`` are those of the sample. Of each column that counts on there, ``counting`` has the width that it had
    and how much it counts on from one tuple to the next.
    """

    row_bytes: int
    level_rows: int
    counting: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(
        cls, relation: Relation, spec: JoinSpec, sample: pa.RecordBatch | None, codes: StoredCodes, level_rows: int
    ) -> WaitingRows:
        """What a sample tells. Without one, all but codes take what their types do, and codes what R's need."""
        schema, condition = spec.stream_schema, spec.condition
        if sample is None or sample.num_rows == 0:
            most = StreamBuffer.most_bytes(
                1,
                schema,
                code_stored=codes.column is not None,
                single_codes=condition.single_codes,
                code_shift=codes.shift,
            )
            table = relation.table
            span = int(table.last_code.max(initial=0)) - int(table.first_code.min(initial=0))
            narrow = condition.single_codes and not codes.shift and span < 1 << (8 * NARROW)
            return cls(most - (8 - NARROW if narrow else 0), level_rows)
        rows = sample.slice(0, level_rows)
        stored = StreamBuffer(
            schema,
            4 * rows.nbytes + (1 << 16),
            rows.num_rows,
            codes.column,
            single_codes=condition.single_codes,
            code_shift=codes.shift,
        ).stored_row_bytes(rows, condition.ranges(rows))
        integers = {i: PackedColumn(t) for i, t in enumerate(schema.types) if is_packable(t) and i != codes.column}
        parts = [part for i, column in integers.items() for part in column.integers(rows.column(i))]
        counting = [(PackedValues.of(part).width, step) for part in parts if (step := _step(part))]
        return cls(stored, level_rows, tuple(counting))

    def __call__(self, spread: float) -> int:
        """Bytes of a tuple if the stream has ``spread`` for each that waits."""
        rows = min(self.level_rows * spread, 2.0**62)
        return self.row_bytes + sum(max(_width(step * rows) - width, 0) for width, step in self.counting)


def _step(values: np.ndarray) -> float:
    """How much values count on from one to the next, on average; 0 if they do not."""
    half = values.size // 2
    if half == 0:
        return 0.0
    some, every = int(value_span(values[:half])[1]), int(value_span(values)[1])
    return every / values.size if every > _GROWS * max(some, 1) else 0.0


def _width(span: float) -> int:
    return next(width for width in (0, 1, 2, 4, 8) if width == 8 or span < 1 << (8 * width))
