"""LookupJoin: stream tuples that are looked up together, in the order of their codes, in runs of R that hold them."""

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

_TUPLE_BYTES = 40  # a tuple's code, its place in the order of codes, its flag, while a step looks it up
_RANGE_TUPLE_BYTES = 96  # the same with a range of codes


class LookupJoin(SemiStreamJoin):
    """Takes tuples in some at a time, and looks those of one admission up together.

    A subclass says where the runs of R come from that hold what is asked for, and calls `_set_up` when it is arranged.
    A condition must pin down R's key, to a value or to a range.
    """

    needs_index: ClassVar[bool] = True
    _split: MemorySplit

    @abstractmethod
    def _runs(self, low: Int64s, furthest: Int64s) -> Iterator[PageRun]:
        """The pages that hold any code asked for; a run is done with when the next one is asked for.

        Ranges begin at the ascending ``low``; those up to one end at its ``furthest`` code or before.
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
            whole = min(self._split.admit_rows, batch.num_rows - done)  # few at a time would share fewer pages
            admitted = self._intake.admit(batch, done, room) if room >= whole or not self._waiting else None
            if admitted is None:
                yield from self.turn()
                continue
            self._waiting.append(admitted)
            self.stats.rows_in += admitted.sizes.size
            self.stats.packets += 1
            done += admitted.sizes.size

    def turn(self) -> Results:
        """Look up the tuples that have waited longest: those of one admission."""
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
    """The tuples of one admission, by row."""

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
    """How a memory is split for look-ups in one run at a time, beside ``index_bytes`` that are held of R."""
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
