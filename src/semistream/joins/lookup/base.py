"""LookupJoin: the base of operators that look up groups of stream tuples, in the order of their codes, in runs of R."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.loop import Results
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Admitted, Intake
from semistream.joins.parts.memory_split import MemorySplit, Shares
from semistream.joins.parts.sorted_codes import SortedRanges
from semistream.kernels.array_types import Int64s
from semistream.relation import AnyRelation, PageRun

_TUPLE_BYTES = 40  # per tuple during a look-up: its code, its place in the order of codes, its flag
_RANGE_TUPLE_BYTES = 96  # the same for a range of codes


class LookupJoin(SemiStreamJoin):
    """Base class of operators that admit tuples in groups and look up each group together.

    A subclass implements `_runs`, the source of R's pages, and calls `_set_up` in `arrange`. The condition must
    restrict R's key to a value or a range.
    """

    needs_index: ClassVar[bool] = True
    _split: MemorySplit

    @abstractmethod
    def _runs(self, low: Int64s, furthest: Int64s) -> Iterator[PageRun]:
        """Yield runs of all pages that hold a code looked for. A run is valid until the next one.

        Ranges start at ``low``, which ascends. ``furthest[i]`` is the greatest end of the ranges 0..i.
        """

    def _set_up(self, split: MemorySplit) -> None:
        self._split = split
        self._emitter = Emitter(self.spec, split, self._memory)
        self._intake = Intake(self.spec, split, self._memory)
        self._position = np.empty(split.matches, np.int64)
        self._page, self._row = (np.empty(split.matches, np.int32) for _ in range(2))
        self._waiting: list[Admitted] = []

    def feed(self, batch: pa.RecordBatch) -> Results:
        done = 0
        while done < batch.num_rows:
            room = self._split.slots - self.stats.rows_waiting
            whole = min(self._split.admit_rows, batch.num_rows - done)  # smaller groups would share fewer pages
            admitted = self._intake.admit(batch, done, room) if room >= whole or not self._waiting else None
            if admitted is None:
                yield from self.turn()
                continue
            self._waiting.append(admitted)
            self.stats.rows_in += admitted.sizes.size
            self.stats.packets += 1
            done += admitted.sizes.size

    def turn(self) -> Results:
        """Look up the oldest waiting group of tuples."""
        if not self._waiting:
            return
        self.stats.steps += 1
        tuples = self._waiting.pop(0)
        asked = SortedRanges.of(tuples.ranges, np.arange(tuples.sizes.size))
        self.stats.probes += asked.size
        matched = np.zeros(tuples.sizes.size, np.bool_)
        stream = _BatchRows(tuples)
        for run in self._runs(asked.low, asked.furthest):
            self.stats.level_probes += 1
            codes = self.spec.condition.codes_of(run)
            for rows, page, row in asked.matches(codes, self._position, self._page, self._row):
                joined = self._emitter.verified(stream, rows, run, page, row)
                matched[rows[joined]] = True
                if self.spec.pairs:
                    yield from self._emitter.stage(stream, rows[joined], run, page[joined], row[joined])
        self._done(stream, np.arange(matched.size), matched)
        yield from self._emitter.finished(stream, tuples.batch, matched)
        self._intake.release(tuples.sizes)


class _BatchRows:
    """The tuples of one group, addressed by row number."""

    def __init__(self, tuples: Admitted) -> None:
        self._tuples = tuples

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        batch = self._tuples.batch if columns is None else self._tuples.batch.select(columns)
        return list(batch.take(pa.array(positions)).columns)

    def row_bytes(self, positions: Int64s) -> Int64s:
        return self._tuples.sizes[positions]


def split_lookup_memory(
    memory: MemoryBudget,
    relation: AnyRelation,
    spec: JoinSpec,
    *,
    purpose: str,
    index_bytes: int = 0,
    shares: Shares | None = None,
) -> MemorySplit:
    """Split a memory for look-ups in one run at a time, beside ``index_bytes`` that hold parts of R."""
    tuple_bytes = _TUPLE_BYTES if spec.condition.single_codes else _RANGE_TUPLE_BYTES
    return MemorySplit.of(
        memory,
        relation,
        spec,
        purpose=purpose,
        index_bytes=index_bytes,
        slots_bytes=lambda slots: slots * tuple_bytes,
        run_buffers=1,
        shares=shares,
    )
