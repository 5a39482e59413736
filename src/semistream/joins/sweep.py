"""SweepJoin: stream tuples in the order of their keys, met by an endless sweep over the pages that they need."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.base import JoinArguments, Results, SemiStreamJoin
from semistream.joins.emitter import Emitter
from semistream.joins.intake import Intake
from semistream.joins.lane import Lane
from semistream.joins.memory_split import MemorySplit
from semistream.joins.page_sweep import PageSweep
from semistream.joins.stream_buffer import StreamBuffer
from semistream.relation import Relation

_LANES = 5  # runs that are read or joined at once
_THREADS = 3
_SCARCE_PAGES = 48  # of R: with less memory there is one lane, so that little is enough
_LANE_BYTES = 2 << 20  # of results of a run: as many as a run of R has rows, if they are not too wide
_LEVEL_ROWS = 1 << 16  # tuples that are sorted at once: they should stay in the processor's cache


class SweepJoin(SemiStreamJoin):
    """The papers' ideas on one path: MESHJOIN's endless scan, but only over pages that are needed, and planned.

    Stream tuples wait in the order of their key codes (`StreamBuffer`), in all of the memory that there is. The sweep
    goes round over the pages of R in the order of the disk (`PageSweep`): tuples enter wherever it stands and leave
    when it is there again, as in MESHJOIN, so that the disk never waits for the stream, nor the stream for a phase to
    end. Pages that no tuple needs are passed over by SSIJ's read plan; when most are needed, this is a full scan. Runs
    are read, matched and gathered by threads, each run in a lane of its own, while the stream is taken in: payload
    columns are touched only for pairs, once, when they come out. Results come in the order of the sweep.

    Each tuple meets each page that it needs exactly once, so the result is exact: it enters at a count of pages passed,
    runs asked for before do not meet it, and it leaves when all of R has passed after that.
    """

    name = "sweep"
    needs_index = True

    def __init__(self, relation: Relation, stream_schema: pa.Schema, **arguments: Unpack[JoinArguments]) -> None:
        super().__init__(relation, stream_schema, **arguments)
        self._most_lanes = _LANES
        self._put_together()

    def _arrange(self) -> None:
        relation, condition, schema = self.relation, self.spec.condition, self.spec.stream_schema
        code_column = self._code_column()
        split, buffers = self._split(code_column)
        lanes, each = _in_lanes(split, buffers)
        self._lanes = lanes
        self._lane_bytes = each.staging_bytes
        self._buffer = StreamBuffer(schema, split.slots, code_column, single_codes=condition.single_codes)
        self._intake = Intake(self.spec, each, self._memory, keeps_batches=False)
        self._emitter = Emitter(self.spec, each, self._memory)
        self._idle = deque(
            Lane(
                self._buffer, Emitter(self.spec, each, MemoryBudget(each.staging_bytes)), each.matches, self.spec.pairs
            )
            for _ in range(lanes)
        )
        self._working: deque[tuple[Lane, int]] = deque()  # and the count at which the first page of its run is passed
        self._reader = relation.reader(
            run_bytes=split.run_bytes, disk=self._disk, buffers=lanes, threads=min(_THREADS, lanes)
        )
        self._sweep = PageSweep(relation, self._disk.costs, run_bytes=split.run_bytes, run_pages=split.run_pages)

    def _split(self, code_column: int | None) -> tuple[MemorySplit, int]:
        """The parts of the budget, and for how many lanes: for one if there is not enough for more."""
        relation = self.relation
        split = partial(
            MemorySplit.of,
            self._memory,
            relation,
            self.spec,
            purpose=f"a {self.name} join with {relation.path}",
            index_bytes=relation.table.memory_bytes + PageSweep.memory_bytes(relation.num_pages) + relation.num_pages,
            slots_bytes=partial(
                StreamBuffer.index_bytes,
                code_stored=code_column is not None,
                single_codes=self.spec.condition.single_codes,
            ),
        )
        if self._most_lanes > 1 and self._memory.limit >= _SCARCE_PAGES * relation.largest_page:
            with suppress(BudgetError):
                return split(run_buffers=self._most_lanes), self._most_lanes
        return split(run_buffers=1), 1

    def _code_column(self) -> int | None:
        """The stream's column whose values are its codes, if there is one: it need not be stored twice."""
        condition, codec, schema = self.spec.condition, self.relation.codec, self.spec.stream_schema
        if condition.access != "equality" or not codec.in_place_code:
            return None
        column = schema.get_field_index(condition.stream_keys[0])
        return column if schema.types[column] == codec.types[0] else None

    def _attach_watcher(self) -> None:
        for lane in (*self._idle, *(lane for lane, _ in self._working)):
            lane.keeps_pairs = self._watcher is not None

    def _pages_to_drain(self) -> int:
        return self._sweep.pages_wanted

    def _pages_asked(self) -> int:
        return self._reader.pages_waiting

    def _push(self, batch: pa.RecordBatch) -> Results:
        done = 0
        while done < batch.num_rows:
            if self._lanes > 1:
                self._read_ahead()
            try:
                tuples = self._intake.admit(batch, done, min(self._buffer.room, _LEVEL_ROWS))
            except BudgetError:
                if self._lanes == 1:
                    raise
                yield from self._flush()  # a tuple too wide for a lane's part: let one lane have it all
                self._most_lanes = 1
                self._arrange_anew()
                continue
            if tuples is None:
                yield from self._iterate()
                continue
            passed = self._sweep.passed
            ranges = self._buffer.admit(tuples, passed, passed + self._sweep.num_pages)
            self._sweep.want(ranges)
            done += tuples.sizes.size
            self.stats.rows_in += tuples.sizes.size
            self.stats.inserts += ranges.size

    def _step(self) -> Results:
        yield from self._iterate()

    def _flush(self) -> Results:
        while self._buffer.levels:
            yield from self._iterate()

    def _iterate(self) -> Results:
        """Give out what the next run has found, and let tuples go that have met all of R."""
        if not self._buffer.levels:
            return
        self.stats.steps += 1
        self._read_ahead()
        if self._working:
            yield from self._finish_run()
            if self._lanes > 1:
                self._read_ahead()
        met = self._working[0][1] if self._working else self._sweep.peek()
        if met is None:  # nothing is wanted: all that is left of R is passed over
            met = self._buffer.levels[-1].leaves_at
        while self._buffer.levels and self._buffer.levels[0].leaves_at <= met:
            yield from self._expire()

    def _read_ahead(self) -> None:
        """Start a lane for each run that comes next."""
        while self._idle:
            run = self._sweep.next()
            if run is None:
                return
            sequence, passed = run
            lane = self._idle.popleft()
            self._memory.charge("output", self._lane_bytes)
            self._working.append((lane, int(passed[0])))
            self._reader.ask(sequence, partial(lane.start, passed=passed, view=self._buffer.view()))

    def _finish_run(self) -> Results:
        lane = self._working[0][0]
        piece = self._reader.take()
        while True:
            if piece.batch is not None:
                yield piece.batch
            if piece.last:
                break
            piece = self._reader.submit(lane.advance).result()
        assert lane.run is not None
        self.stats.probes += int(lane.run.rows.sum())
        lane.finish(self._watcher)
        self._memory.release("output", self._lane_bytes)
        self._working.popleft()
        self._idle.append(lane)
        self._reader.give_back()

    def _expire(self) -> Results:
        """Let the oldest level go: its tuples have met all of R."""
        level = self._buffer.levels[0]
        slots = np.arange(level.begin, level.end)
        matched = self._buffer.matched[level.begin : level.end]
        yield from self._emitter.finished_tuples(self._buffer, slots, matched)
        self._done(self._buffer, slots, matched)
        self.stats.expiries += level.matchable - level.begin
        self._buffer.leave()
        self._intake.release(level.sizes)

    def close(self) -> None:
        """End the threads and close files."""
        self._reader.close()


def _in_lanes(split: MemorySplit, most: int) -> tuple[int, MemorySplit]:
    """How many lanes there is memory for, and what each has; with several, one part more is for unpaired tuples."""
    share = _shared(split, most + 1)
    if (
        most > 1
        and share.staging_bytes > 2 * split.widest_row
        and (share.widest_checked is None or share.widest_checked > 0)
    ):
        return most, share
    return 1, _shared(split, 1)


def _shared(split: MemorySplit, parts: int) -> MemorySplit:
    staging = split.staging_bytes // parts
    checked = split.widest_checked
    return replace(
        split,
        staging_bytes=staging,
        batch_bytes=min(staging, _LANE_BYTES),
        check_bytes=split.check_bytes // parts,
        widest_checked=checked if checked is None or parts == 1 else checked // parts - split.widest_row,
        matches=max(split.matches // parts, 1),
        lanes=_LANES + 1,
    )
