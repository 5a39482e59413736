"""SweepJoin: stream tuples in the order of their keys, met by an endless sweep over the pages that they need."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.base import SemiStreamJoin
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Intake, Taken
from semistream.joins.sweep.byte_ring import Place, aligned
from semistream.joins.sweep.cost_model import SweepModel, SweepPace
from semistream.joins.sweep.levels import Level, LevelView
from semistream.joins.sweep.memory import SmallBatches, SweepMemory, WaitingRows
from semistream.joins.sweep.packing import RowRanges
from semistream.joins.sweep.route import PageSweep
from semistream.joins.sweep.row_packing import RowPacking
from semistream.joins.sweep.stream_buffer import StreamBuffer
from semistream.kernels.array_types import Int64s
from semistream.relation import Relation
from semistream.relation.read.disk import allocate_buffers
from semistream.relation.read.run_reader import RunReader

_THREADS = 3  # that read runs and sort tuples
_LEAST_TRIMMED = 64  # tuples for each level, and in all, for which it is worth it to move those that stay together


class SweepJoin(SemiStreamJoin):
    """The papers' ideas on one path: MESHJOIN's endless scan, but only over pages that are needed, and planned.

    Stream tuples wait in the order of their key codes (`StreamBuffer`), in all of the memory that there is. The sweep
    goes round over the pages of R in the order of the disk (`PageSweep`): tuples enter wherever it stands and leave
    when it is there again, as in MESHJOIN, so that the disk never waits for the stream, nor the stream for a phase to
    end. Pages that no tuple needs are passed over by SSIJ's read plan; when most are needed, this is a full scan. Runs
    are read ahead and tuples are sorted by threads; payload columns are touched only for pairs, once, when they come
    out. Results come in the order of the sweep.

    Each tuple meets each page that it needs exactly once, so the result is exact: it enters at a count of pages passed,
    runs asked for before do not meet it, and it leaves when all of R has passed after that. When room is wanted,
    tuples of which all pages have passed leave before the others of their level, which are moved together. Half of
    those that came in a pass have left by its end, so nearly twice as many come in a pass as can wait. That takes pages
    that lie on the disk in the order of their codes, as they do until R is updated, and tuples that ask for one code
    and have no nested values.

    Tuples gather as long as there is room: if they are flushed before it is full, one pass serves all of them. From
    then on the sweep keeps pace with the stream: for each tuple that comes it goes on by as many pages as there are for
    each tuple that can come in a pass. So levels of tuples enter all around R and leave one by one, and to sort the
    next one and to join those before is done at once.
    """

    name = "sweep"
    needs_index = True

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> SweepModel:
        """A sweep whose levels hold rows like those of the sample."""
        relation, spec = facts.relation, facts.spec
        assert isinstance(relation, Relation)
        packing = facts.once("row packing", lambda: RowPacking.of(relation, spec))
        in_order = facts.once("in key order", lambda: bool(np.all(np.diff(relation.table.scan_order()) > 0)))
        layout = SweepMemory.of(memory, relation, spec, packing, purpose=f"a {cls.name} join with {relation.path}")
        return SweepModel(
            buffer_bytes=layout.buffer_bytes,
            level_rows=layout.level_rows,
            run_bytes=layout.split.run_bytes,
            trims=packing.single_codes and in_order and not packing.unpacked,
            row_bytes=WaitingRows.of(facts, packing, layout.level_rows),
            batch_rows=Emitter.capacity(spec, layout.split),
            runs=layout.runs,
        )

    def arrange(self) -> None:
        relation, spec = self.relation, self.spec
        packing = RowPacking.of(relation, spec)
        memory = SweepMemory.of(
            self._memory, relation, spec, packing, purpose=f"a {self.name} join with {relation.path}"
        )
        split = memory.split
        self._level_rows = memory.level_rows
        self._small = SmallBatches(memory.small_rows, memory.small_bytes)
        run_buffer = RunReader.memory_bytes(split.run_bytes, 1, len(relation.table.segments))
        *run_buffers, waiting = allocate_buffers([*([run_buffer] * memory.runs), aligned(memory.buffer_bytes)])
        self._buffer = StreamBuffer(packing, memory.buffer_bytes, memory.level_rows, memory=waiting)
        payload_bytes = self._memory.free - split.staging_bytes if packing.unpacked else self._buffer.widest
        split = replace(split, payload_bytes=payload_bytes)
        self._intake = Intake(spec, split, self._memory, keeps_batches=False, columns=packing.unpacked)
        self._emitter = Emitter(spec, split, self._memory)
        self._number = np.empty(split.matches, np.int64)
        self._page, self._row = (np.empty(split.matches, np.int32) for _ in range(2))
        self._reader = relation.reader(
            run_bytes=split.run_bytes,
            disk=self._disk,
            buffers=memory.runs,
            threads=min(_THREADS, memory.runs),
            memory=run_buffers,
        )
        self._reads_ahead = memory.runs > 1
        self._asked: deque[Int64s] = deque()  # for each run, the counts at which its pages are passed
        self._in_before = 0  # tuples that are taken in now and were counted before
        self._paces = False  # whether it keeps pace with the stream: when there was no room left, until none waits
        self._met = self._due = 0  # counts of pages: that were met, and that should be before more tuples come in
        self._sweep = PageSweep(relation, self._read_costs, run_bytes=split.run_bytes, run_pages=split.run_pages)
        self._pace = SweepPace.of(
            self._read_costs.request_s(relation.nbytes, relation.num_pages),
            relation.num_rows,
            level_rows=memory.level_rows,
            buffer_bytes=memory.buffer_bytes,
            trims=packing.single_codes and not packing.unpacked and self._sweep.in_key_order,
        )
        self._trimmed = 0  # the count at which tuples were last let go before their level

    @property
    def capacity(self) -> int:
        """Stream tuples that can wait at a time, if they are like those that came last."""
        return self._buffer.capacity

    @property
    def pass_rows(self) -> int:
        """Stream tuples that can come in a pass over R, if there is to be room for the next ones in time."""
        return self._pace.pass_rows(self._buffer.capacity)

    @property
    def run_bytes(self) -> int:
        """The most that is read at once."""
        return self._reader.run_bytes

    def pages_to_drain(self) -> int:
        return min(self._sweep.pages_wanted + self._small.rows, self.relation.num_pages)

    def pages_asked(self) -> int:
        return self._reader.pages_waiting

    def feed(self, batch: pa.RecordBatch) -> Results:
        """Take tuples in a whole level at a time, however many come: what is left over waits for others."""
        self._intake.require_narrow(batch)
        while batch.num_rows:
            if self._small.add(batch):
                self.stats.rows_in += batch.num_rows
                return
            waiting = self._small.rows
            whole = self._level_rows - waiting if waiting else batch.num_rows // self._level_rows * self._level_rows
            rows = min(whole or batch.num_rows, batch.num_rows)  # only those are copied that fill a level up
            self._in_before = waiting
            yield from self._take_in(self._small.take(batch.slice(0, rows)))
            batch = batch.slice(rows)

    def _take_in(self, batch: pa.RecordBatch | None) -> Results:
        """Let tuples wait in levels, and join others until there is room for them."""
        done = 0
        while batch is not None and done < batch.num_rows:
            self._read_ahead()
            left = batch.num_rows - done
            rows = -(-left // -(-left // self._level_rows))  # levels of the same size
            place = self._buffer.room(rows)
            if place is None and self._worth_trimming(rows):
                yield from self._trim()
                place = self._buffer.room(rows)
            taken = None if place is None else self._intake.take(batch, done, rows)
            self._paces = bool(self._buffer.levels) and (self._paces or taken is None)
            if place is None or taken is None:
                yield from self._iterate()
                continue
            level = self._reader.submit(self._stored, place, taken)
            while self._paces and self._buffer.levels and self._met < self._due:
                yield from self._iterate()
            done += self._enter(level.result(), taken.charged)

    def _worth_trimming(self, rows: int) -> bool:
        """Whether enough tuples have met all their pages since it was last done, and can go before their level.

        As levels enter all around R, the tuples that wait are half of those that come in a pass. All that wait are
        moved, however few go, so it may be done for several levels at a time.
        """
        waiting, levels = sum(level.rows for level in self._buffer.levels), len(self._buffer.levels)
        passed = self._joined_to - self._trimmed
        wanted = rows * self._pace.trimmed_levels(self._buffer.capacity)
        return (
            self._pace.trims
            and waiting >= _LEAST_TRIMMED * levels
            and 2 * waiting * passed >= max(wanted, _LEAST_TRIMMED) * self._sweep.num_pages
        )

    @property
    def _joined_to(self) -> int:
        """The count before which all pages that were wanted are joined."""
        return int(self._asked[0][0]) if self._asked else self._sweep.passed

    def _trim(self) -> Results:
        """Let tuples go that have met all pages that may hold their codes."""
        view, kept = self._buffer.view, []
        yield from self._emitter.emit(view)
        for level in self._buffer.levels:
            kept.append(self._not_met(level))
            bounds = [0, *chain.from_iterable(kept[-1]), level.rows]
            for begin, end in zip(bounds[::2], bounds[1::2], strict=True):
                yield from self._let_go(view, level, begin, end)
        self._buffer.keep(kept)
        self._trimmed = self._joined_to

    def _not_met(self, level: Level) -> RowRanges:
        """The tuples of a level that have yet to meet a page."""
        if self._joined_to <= level.enters_at:
            return [(0, level.matchable)]
        after, before, either = self._sweep.codes_met(level.enters_at, self._joined_to)
        begin = 0 if after is None else self._buffer.position(level, after, behind=True)
        end = self._buffer.position(level, before, behind=False)
        if either:
            return [(end, begin)]
        return [(0, begin), (max(end, begin), level.matchable)]  # a code may have rows in all pages that were passed

    def _stored(self, place: Place, taken: Taken) -> Level | None:
        return self._buffer.store(place, taken.batch, taken.sizes, self._intake.ranges(taken.batch))

    def _enter(self, level: Level | None, charged: Int64s | None) -> int:
        """Let tuples that were stored, and charged for, be joined; gives how many these are."""
        rows = 0 if level is None else level.rows
        if charged is not None and rows < charged.size:
            self._intake.give_back(int(charged[rows:].sum()))
        if level is None:
            return 0
        level.charged = 0 if charged is None else int(charged[:rows].sum())
        passed, pages = self._sweep.passed, self._sweep.num_pages
        ahead = self.run_bytes * pages // max(self.relation.nbytes, 1)  # as it goes on by runs
        self._due = max(self._due, self._met - ahead) + (rows * pages // self.pass_rows if self._paces else 0)
        self._buffer.enter(level, passed, passed + pages)
        self._sweep.want(*self._buffer.asked(level))
        counted = min(rows, self._in_before)
        self._in_before -= counted
        self.stats.rows_in += rows - counted
        self.stats.packets += 1
        self.stats.inserts += level.matchable
        return rows

    def turn(self) -> Results:
        yield from self._take_in_small()
        yield from self._iterate()

    def _take_in_small(self) -> Results:
        self._in_before = self._small.rows
        yield from self._take_in(self._small.take())

    def drain(self) -> Results:
        yield from self._take_in_small()
        while self._buffer.levels:
            yield from self._iterate()

    def _iterate(self) -> Results:
        """Join the next run, and let tuples go that have met all of R."""
        if not self._buffer.levels:
            return
        self.stats.steps += 1
        self._read_ahead()
        if self._asked:
            yield from self._join_run()
            self._read_ahead()
        met = int(self._asked[0][0]) if self._asked else self._sweep.peek()
        if met is None:  # nothing is wanted: all that is left of R is passed over
            met = self._buffer.levels[-1].leaves_at
        self._met = met
        while self._buffer.levels and self._buffer.levels[0].leaves_at <= met:
            yield from self._expire()

    def _read_ahead(self) -> None:
        """Ask for the runs that come next."""
        while self._reader.room:
            run = self._sweep.next()
            if run is None:
                return
            sequence, passed = run
            self._asked.append(passed)
            self._reader.ask(sequence)

    def _join_run(self) -> Results:
        """Join the run that was asked for first with the tuples that waited then."""
        run, passed, view = self._reader.take(), self._asked.popleft(), self._buffer.view
        certain = self.spec.condition.check is None
        for pairs in view.probe(run, passed, self._number, self._page, self._row, marks=certain):
            numbers, page, row = pairs
            kept = self._emitter.verified(view, numbers, run, page, row)
            if not certain:
                numbers, page, row = numbers[kept], page[kept], row[kept]
                view.mark(numbers)
            if self.spec.pairs:
                yield from self._emitter.stage(view, numbers, run, page, row)
        self.stats.probes += int(run.rows.sum())
        self.stats.level_probes += len(self._buffer.levels)
        self.stats.waits += not self._reads_ahead
        self._reader.give_back()

    def _expire(self) -> Results:
        """Let the oldest level go: its tuples have met all of R."""
        level, view = self._buffer.levels[0], self._buffer.view
        yield from self._emitter.emit(view)
        yield from self._let_go(view, level, 0, level.rows)
        self._buffer.leave()
        self._intake.give_back(level.charged)

    def _let_go(self, view: LevelView, level: Level, begin: int, end: int) -> Results:
        """Give out what is to come of tuples of a level that need no page any more, and count them."""
        if begin == end:
            return
        matched = view.matched(level)[begin:end]
        self.stats.expiries += min(end, level.matchable) - min(begin, level.matchable)
        if self.spec.how == "inner" and self._deadlines is None:  # only pairs come out
            self.stats.count_done(matched)
            return
        numbers = level.numbers(begin, end)
        yield from self._emitter.finished_tuples(view, numbers, matched)
        self._done(view, numbers, matched)

    def close(self) -> None:
        """End the threads and close files."""
        self._reader.close()
