"""SweepJoin: stream tuples in the order of their keys, met by an endless sweep over the pages that they need."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Unpack

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.base import JoinArguments, Results, SemiStreamJoin
from semistream.joins.byte_ring import Place
from semistream.joins.emitter import Emitter
from semistream.joins.intake import Intake
from semistream.joins.lane import Lane
from semistream.joins.level import Level
from semistream.joins.memory_split import MemorySplit
from semistream.joins.page_sweep import PageSweep
from semistream.joins.stream_buffer import StreamBuffer
from semistream.kernels.types import Int64s
from semistream.relation import Relation

_LANES = 4  # runs that are read or joined at once
_THREADS = 3
_RUN_BYTES = 2 << 20
_LEAST_RUN_BYTES = 1 << 20  # rather than shorter runs there are fewer lanes
_RUNS_SHARE = 6  # one part in so many of the memory is for runs
_LEVELS = 8  # at least
_ADMIT_SHARE = 9  # one part in so many of the memory is for sorting: the larger levels are, the faster they are joined
_ADMIT_IN_PLACE = 24  # bytes to sort a tuple whose code is a column of the stream
_SCARCE_PAGES = 48  # of R: with less memory there is one lane, so that little is enough
_STAGING_SHARE = 8
_LANE_BYTES = 8 << 19  # of results of a run: as many as a run of R has rows, if they are not too wide


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
        stored = {"code_stored": code_column is not None, "single_codes": condition.single_codes}
        split, lanes = self._split(stored)
        lanes, each = _in_lanes(split, lanes)
        self._lanes = lanes
        self._lane_bytes = each.staging_bytes
        buffer_bytes = StreamBuffer.most_bytes(split.slots, schema, **stored)
        packed_bytes = buffer_bytes - StreamBuffer.index_bytes(split.slots, **stored)  # the index is charged for
        self._memory.charge("stream buffer", packed_bytes)
        self._level_rows = max(min(split.admit_rows, split.slots // _LEVELS), 1)
        self._buffer = StreamBuffer(
            schema, buffer_bytes, self._level_rows, code_column, single_codes=condition.single_codes
        )
        unpacked = self._buffer.unpacked
        each = replace(each, payload_bytes=split.payload_bytes - packed_bytes if unpacked else buffer_bytes)
        self._intake = Intake(self.spec, each, self._memory, keeps_batches=False, columns=unpacked)
        self._emitter = Emitter(self.spec, each, self._memory)
        self._idle = deque(
            Lane(Emitter(self.spec, each, MemoryBudget(each.staging_bytes)), each.matches, self.spec.pairs)
            for _ in range(lanes)
        )
        self._working: deque[tuple[Lane, int]] = deque()  # and the count at which the first page of its run is passed
        self._reader = relation.reader(
            run_bytes=split.run_bytes, disk=self._disk, buffers=lanes, threads=min(_THREADS, lanes)
        )
        self._met = self._due = 0  # counts of pages: that were met, and that should be before more tuples come in
        self._sweep = PageSweep(relation, self._disk.costs, run_bytes=split.run_bytes, run_pages=split.run_pages)

    def _split(self, stored: dict[str, bool]) -> tuple[MemorySplit, int]:
        """The parts of the budget, and for how many lanes: for one if there is not enough for more."""
        relation, limit = self.relation, self._memory.limit
        split = partial(
            MemorySplit.of,
            self._memory,
            relation,
            self.spec,
            purpose=f"a {self.name} join with {relation.path}",
            index_bytes=relation.table.memory_bytes + PageSweep.memory_bytes(relation.num_pages) + relation.num_pages,
            slots_bytes=partial(StreamBuffer.index_bytes, **stored),
            most_run_bytes=_RUN_BYTES,
            admit_bytes=_ADMIT_IN_PLACE if stored["code_stored"] else None,
            admit_share=_ADMIT_SHARE,
            staging_share=_STAGING_SHARE,
        )
        lanes = min(self._most_lanes, max(limit // _RUNS_SHARE // _LEAST_RUN_BYTES, 2))
        if lanes > 1 and limit >= _SCARCE_PAGES * relation.largest_page:
            with suppress(BudgetError):
                return split(run_buffers=lanes, run_share=_RUNS_SHARE * lanes), lanes
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
        goes_on = bool(self._buffer.levels)
        while done < batch.num_rows:
            if self._lanes > 1:
                self._read_ahead()
            left = batch.num_rows - done
            rows = -(-left // -(-left // self._level_rows))  # levels of the same size
            place = self._buffer.room(rows)
            try:
                taken = None if place is None else self._intake.take(batch, done, rows)
            except BudgetError:
                if self._lanes == 1:
                    raise
                yield from self._flush()  # a tuple too wide for a lane's part: let one lane have it all
                self._most_lanes = 1
                self._arrange_anew()
                continue
            if place is None or taken is None:
                yield from self._iterate()
                continue
            level = self._reader.submit(self._stored, place, *taken)
            while goes_on and self._buffer.levels and self._met < self._due:
                yield from self._iterate()
            done += self._enter(level.result(), *taken)

    def _stored(self, place: Place, batch: pa.RecordBatch, sizes: Int64s) -> Level | None:
        return self._buffer.store(place, batch, sizes, self._intake.ranges(batch))

    def _enter(self, level: Level | None, batch: pa.RecordBatch, sizes: Int64s) -> int:
        """Let tuples that were stored be joined; gives how many these are."""
        rows = 0 if level is None else level.rows
        charged = self._intake.charged(batch, sizes)
        if charged is not None and rows < batch.num_rows:
            self._intake.give_back(int(charged[rows:].sum()))
        if level is None:
            return 0
        level.charged = 0 if charged is None else int(charged[:rows].sum())
        passed, pages = self._sweep.passed, self._sweep.num_pages
        kept = max(self._buffer.capacity - 2 * rows, 1)  # there is room for the next levels when it is their turn
        self._due = max(self._due, self._met) + rows * pages // kept
        self._buffer.enter(level, passed, passed + pages)
        self._sweep.want(*self._buffer.asked(level))
        self.stats.rows_in += rows
        self.stats.inserts += level.matchable
        return rows

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
        self._met = met
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
            self._reader.ask(sequence, partial(lane.start, passed=passed, view=self._buffer.view))

    def _finish_run(self) -> Results:
        lane = self._working[0][0]
        piece = self._reader.take()
        while True:
            if piece.batch is not None:
                yield piece.batch
            if piece.last:
                break
            piece = lane.advance()
        assert lane.run is not None
        self.stats.probes += int(lane.run.rows.sum())
        lane.finish(self._watcher)
        self._memory.release("output", self._lane_bytes)
        self._working.popleft()
        self._idle.append(lane)
        self._reader.give_back()

    def _expire(self) -> Results:
        """Let the oldest level go: its tuples have met all of R."""
        level, view = self._buffer.levels[0], self._buffer.view
        numbers, matched = level.numbers, view.matched(level)
        yield from self._emitter.finished_tuples(view, numbers, matched)
        self._done(view, numbers, matched)
        self.stats.expiries += level.matchable
        self._buffer.leave()
        self._intake.give_back(level.charged)

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
