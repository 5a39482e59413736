"""Memory of a sweep: its layout, the queue of small batches, and the bytes of a waiting tuple.

`SweepMemory` divides the budget into runs of pages, levels of stream tuples, small batches and output. `SmallBatches`
holds batches too small for a level of their own. `WaitingRows` estimates a waiting tuple's bytes from a sample.
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
from semistream.joins.join_facts import JoinFacts
from semistream.joins.parts.memory_split import MemorySplit, Shares
from semistream.joins.sweep.kernels.pack import value_span
from semistream.joins.sweep.levels import NARROW
from semistream.joins.sweep.route import PageSweep
from semistream.joins.sweep.row_packing import RowPacking
from semistream.relation import Relation

_RUNS = 3  # runs held at once: the one being joined and those read ahead
_SCARCE_PAGES = 48  # with memory for fewer pages than this, hold one run, so that a small budget suffices
_RUNS_SHARE = 4  # runs get 1/4 of the memory
_LEAST_RUN_BYTES = 640 << 10  # hold fewer runs rather than shorter ones
_SHARES = Shares(most_run_bytes=4 << 20, matches=32, staging=24, least_staging=16, admit=9)
_IN_PLACE_SHARES = replace(_SHARES, admit_bytes=24)  # for sorting, where the code is a stream column
_BATCH_BYTES = 8 << 20  # most bytes of a result batch, if staging has them: larger batches mean fewer steps
_SMALL = 10  # small batches get at most 1/10 of the tuples' memory
_LEAST_ROWS = 256  # rows of a level from which small batches are gathered
_LEVELS = 4  # least number of levels; fewer, larger levels are joined faster


@dataclass(frozen=True)
class SweepMemory:
    """The parts of a sweep's memory, all charged to its budget.

    ``runs`` buffers hold runs of pages, and ``buffer_bytes`` the waiting tuples, in levels of up to ``level_rows``.
    Small batches gather up to ``small_rows`` rows in ``small_bytes``.
    """

    split: MemorySplit
    runs: int
    level_rows: int
    small_rows: int
    small_bytes: int
    buffer_bytes: int

    @classmethod
    def of(
        cls, budget: MemoryBudget, relation: Relation, spec: JoinSpec, packing: RowPacking, *, purpose: str
    ) -> SweepMemory:
        """Lay out ``budget``, which must be unused."""
        split_into = partial(
            MemorySplit.of,
            budget,
            relation,
            spec,
            purpose=purpose,
            index_bytes=relation.table.memory_bytes + PageSweep.memory_bytes(relation.num_pages),
            slots_bytes=packing.index_bytes,
        )
        shares = _SHARES if packing.code_column is None else _IN_PLACE_SHARES
        split, runs = _split(split_into, shares, budget.limit, relation.largest_page)
        row_bytes = spec.expected_row_bytes
        packed_bytes = split.payload_bytes * (row_bytes - packing.unpacked_row_bytes) // row_bytes
        level_rows = max(min(split.admit_rows, split.slots // _LEVELS), 1)
        small_rows = level_rows - 1 if level_rows >= _LEAST_ROWS else 0
        small_bytes = min(small_rows * row_bytes, packed_bytes // _SMALL)
        budget.charge("stream buffer", packed_bytes)
        return cls(
            split=replace(split, batch_bytes=min(split.staging_bytes, _BATCH_BYTES)),
            runs=runs,
            level_rows=level_rows,
            small_rows=small_rows,
            small_bytes=small_bytes,
            buffer_bytes=packed_bytes + packing.index_bytes(split.slots) - small_bytes,  # `split` has charged the index
        )


def _split(split_into: partial[MemorySplit], shares: Shares, limit: int, largest_page: int) -> tuple[MemorySplit, int]:
    """Return the parts of the budget and the number of runs to hold: one if the budget is too small for more."""
    if limit >= _SCARCE_PAGES * largest_page:
        runs = min(_RUNS, max(limit // _RUNS_SHARE // _LEAST_RUN_BYTES, 2))
        with suppress(BudgetError):
            return split_into(run_buffers=runs, shares=replace(shares, run=_RUNS_SHARE * runs)), runs
    return split_into(run_buffers=1, shares=shares), 1


class SmallBatches:
    """A queue of batches that wait for more rows, up to ``rows`` and ``nbytes`` in total."""

    def __init__(self, rows: int, nbytes: int) -> None:
        self._most_rows = rows
        self._most_bytes = nbytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Hold a copy of a batch and return True, or return False if there is no room."""
        nbytes = batch.nbytes + batch.num_columns * 8  # buffers are padded
        if self.rows + batch.num_rows > self._most_rows or self._bytes + nbytes > self._most_bytes:
            return False
        self._batches.append(pa.concat_batches([batch, batch.slice(0, 0)]))  # a copy, as the batch may be a slice
        self._bytes += nbytes
        self.rows += batch.num_rows
        return True

    def take(self, more: pa.RecordBatch | None = None) -> pa.RecordBatch | None:
        """Return everything held, followed by ``more``, as one batch; None if there is nothing."""
        batches = self._batches if more is None else [*self._batches, more]
        self._batches, self._bytes, self.rows = [], 0, 0
        return pa.concat_batches(batches) if len(batches) > 1 else next(iter(batches), None)


_GROWS = 1.5  # a column increases steadily if a sample spans more than 1.5 times its first half


@dataclass(frozen=True)
class WaitingRows:
    """Bytes of a tuple in a level of ``level_rows``, as a function of the stream tuples per waiting one.

    ``row_bytes`` is the packed row size of the sample. ``counting`` has a pair for each column that increases steadily
    (a time, a sequence number): its width in the sample, and its mean increase per tuple.
    """

    row_bytes: int
    level_rows: int
    counting: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, facts: JoinFacts, packing: RowPacking, level_rows: int) -> WaitingRows:
        """Measure the sample. Without one, size codes by the span of R's codes and values by their types."""
        if facts.rows is None:
            narrow = packing.single_codes and not packing.code_shift and _spans_little(facts)
            return cls(packing.most_row_bytes - (8 - NARROW if narrow else 0), level_rows)
        rows = min(facts.rows.num_rows, level_rows)
        row_bytes, counting = facts.once(("packed rows", rows), lambda: _measure(facts, packing, rows))
        return cls(row_bytes, level_rows, counting)

    def __call__(self, spread: float) -> int:
        """Return the bytes of a tuple if ``spread`` stream tuples come for each that waits."""
        rows = min(self.level_rows * spread, 2.0**62)
        return self.row_bytes + sum(max(_width(step * rows) - width, 0) for width, step in self.counting)


def _spans_little(facts: JoinFacts) -> bool:
    """Return True if R's codes span so little that a waiting tuple's code fits in ``NARROW`` bytes."""
    assert isinstance(facts.relation, Relation)
    table = facts.relation.table
    span = facts.once("code span", lambda: int(table.last_code.max(initial=0)) - int(table.first_code.min(initial=0)))
    return span < 1 << (8 * NARROW)


def _measure(facts: JoinFacts, packing: RowPacking, rows: int) -> tuple[int, tuple[tuple[int, float], ...]]:
    """Return the bytes of a packed row over the sample's first ``rows``, and its steadily increasing columns."""
    assert facts.rows is not None
    assert facts.ranges is not None
    packed = packing.pack(facts.rows.slice(0, rows), facts.ranges.first(rows))
    parts = [part for parts in packed.values.values() for part in parts]
    return packed.row_bytes, tuple((part.width, step) for part in parts if (step := _growth_per_row(part.values)))


def _growth_per_row(values: np.ndarray) -> float:
    """Return the mean increase from one value to the next; 0 if the values do not increase steadily."""
    half = values.size // 2
    if half == 0:
        return 0.0
    some, every = int(value_span(values[:half])[1]), int(value_span(values)[1])
    return every / values.size if every > _GROWS * max(some, 1) else 0.0


def _width(span: float) -> int:
    return next(width for width in (0, 1, 2, 4, 8) if width == 8 or span < 1 << (8 * width))
