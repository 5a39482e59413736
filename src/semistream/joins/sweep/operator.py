"""SweepJoin: waiting stream tuples, sorted by key code, joined by an endless sweep over the pages they need."""

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

_THREADS = 3  # threads that read runs and sort tuples
_LEAST_TRIMMED = 64  # trim only if levels hold this many tuples on average, and at least this many tuples leave


class SweepJoin(SemiStreamJoin):
    """MESHJOIN's endless scan, restricted to the pages that waiting tuples need, in the order of SSIJ's read plan.

    Waiting tuples fill the memory, sorted by key code and packed (`StreamBuffer`). The sweep circles over the pages of
    R in disk order (`PageSweep`). As in MESHJOIN, a tuple enters wherever the sweep stands and leaves one round later,
    so neither the disk nor the stream waits for a phase to end. The read plan skips pages that no tuple needs; when
    most pages are needed, the sweep is a full scan. Threads read runs ahead and sort tuples. Payload columns are
    touched once, for the pairs that come out. Results come in the order of the sweep.

    The result is exact: each tuple meets each page it needs exactly once. A tuple enters at a count of passed pages.
    Runs requested earlier do not meet it, and it leaves when all of R has passed since.

    When memory runs short, tuples whose pages have all passed leave before the rest of their level, and the rest is
    compacted. By the end of a pass half of its tuples have left, so a pass takes in nearly twice as many tuples as fit
    in memory. This requires pages in code order on disk (true until R is updated), tuples that ask for a single code,
    and no nested columns.

    Tuples gather until memory is full; if they are flushed before that, one pass serves all of them. From then on the
    sweep keeps pace with the stream: for each new tuple it advances by R's pages divided by the tuples that a pass can
    take in. Levels thus enter all around R and leave one by one, and a level is sorted while earlier ones are joined.

    Parameters
    ----------
    relation : Relation
        The relation R, in pages clustered by key; plain Parquet is refused.
    stream : pyarrow.Schema or JoinSpec
        The columns of the stream, or a resolved join.
    on, where : optional
        The join condition: equality with R's key or a range of it, and any further conditions.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rates = Relation.build(pa.table({"day": [1, 2, 3], "rate": [10, 20, 30]}), f"{folder}/r", key="day")
    ...     stays = pa.record_batch({"guest": [7, 8], "from": [1, 3], "to": [2, 3]})
    ...     where = "r.day BETWEEN s.from AND s.to"
    ...     with SweepJoin(rates, stays.schema, where=where, columns=["rate"], memory="1MB") as join:
    ...         results = [*join.push(stays), *join.flush()]
    >>> sorted(zip(*pa.Table.from_batches(results).select(["guest", "rate"]).to_pydict().values()))
    [(7, 10), (7, 20), (8, 30)]

    References
    ----------
    MESH 3.1 (the shared scan), SSIJ IV-D (the read plan); docs/architecture.md, "A row's way through a join".
    """

    name = "sweep"
    needs_index = True

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> SweepModel:
        """Return the cost model of a sweep whose levels hold rows like the sample's."""
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
        self._asked: deque[Int64s] = deque()  # for each requested run, the counts at which its pages are passed
        self._in_before = 0  # tuples being admitted that ``stats.rows_in`` already counts
        self._paces = False  # True while the sweep keeps pace: from the first lack of room until no tuple waits
        self._met = self._due = 0  # counts of pages: already met, and to be met before more tuples enter
        self._sweep = PageSweep(relation, self._read_costs, run_bytes=split.run_bytes, run_pages=split.run_pages)
        self._pace = SweepPace.of(
            self._read_costs.request_s(relation.nbytes, relation.num_pages),
            relation.num_rows,
            level_rows=memory.level_rows,
            buffer_bytes=memory.buffer_bytes,
            trims=packing.single_codes and not packing.unpacked and self._sweep.in_key_order,
        )
        self._trimmed = 0  # count of passed pages at the last trim

    @property
    def capacity(self) -> int:
        """Stream tuples that fit in memory at once, at the current row size."""
        return self._buffer.capacity

    @property
    def pass_rows(self) -> int:
        """Stream tuples that one pass over R can take in while room for the next level is freed in time."""
        return self._pace.pass_rows(self._buffer.capacity)

    @property
    def run_bytes(self) -> int:
        """Most bytes read at once."""
        return self._reader.run_bytes

    def pages_to_drain(self) -> int:
        return min(self._sweep.pages_wanted + self._small.rows, self.relation.num_pages)

    def pages_asked(self) -> int:
        return self._reader.pages_waiting

    def feed(self, batch: pa.RecordBatch) -> Results:
        """Take tuples in by whole levels; rows that do not fill a level wait for more."""
        self._intake.require_narrow(batch)
        while batch.num_rows:
            if self._small.add(batch):
                self.stats.rows_in += batch.num_rows
                return
            waiting = self._small.rows
            whole = self._level_rows - waiting if waiting else batch.num_rows // self._level_rows * self._level_rows
            rows = min(whole or batch.num_rows, batch.num_rows)  # copy only the rows that complete a level
            self._in_before = waiting
            yield from self._take_in(self._small.take(batch.slice(0, rows)))
            batch = batch.slice(rows)

    def _take_in(self, batch: pa.RecordBatch | None) -> Results:
        """Store tuples in levels, joining older ones until there is room."""
        done = 0
        while batch is not None and done < batch.num_rows:
            self._read_ahead()
            left = batch.num_rows - done
            rows = -(-left // -(-left // self._level_rows))  # cut the rest into levels of equal size
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
        """Return True if enough tuples have met all their pages since the last trim.

        As levels enter all around R, the waiting tuples are half of those that come in a pass. A trim moves all
        waiting tuples, however few leave, so it may make room for several levels at once.
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
        """Count of passed pages up to which every wanted page is joined."""
        return int(self._asked[0][0]) if self._asked else self._sweep.passed

    def _trim(self) -> Results:
        """Release the tuples that have met every page that may hold their codes."""
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
        """Return the tuples of a level that still have a page to meet."""
        if self._joined_to <= level.enters_at:
            return [(0, level.matchable)]
        after, before, either = self._sweep.codes_met(level.enters_at, self._joined_to)
        begin = 0 if after is None else self._buffer.position(level, after, behind=True)
        end = self._buffer.position(level, before, behind=False)
        if either:
            return [(end, begin)]
        return [(0, begin), (max(end, begin), level.matchable)]  # end < begin if one code spans all passed pages

    def _stored(self, place: Place, taken: Taken) -> Level | None:
        return self._buffer.store(place, taken.batch, taken.sizes, self._intake.ranges(taken.batch))

    def _enter(self, level: Level | None, charged: Int64s | None) -> int:
        """Admit a stored level to the join, refund the charge for tuples that did not fit, and return its rows."""
        rows = 0 if level is None else level.rows
        if charged is not None and rows < charged.size:
            self._intake.give_back(int(charged[rows:].sum()))
        if level is None:
            return 0
        level.charged = 0 if charged is None else int(charged[:rows].sum())
        passed, pages = self._sweep.passed, self._sweep.num_pages
        ahead = self.run_bytes * pages // max(self.relation.nbytes, 1)  # slack, as the sweep advances by whole runs
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
        """Join the next run, then release the levels that have met all of R."""
        if not self._buffer.levels:
            return
        self.stats.steps += 1
        self._read_ahead()
        if self._asked:
            yield from self._join_run()
            self._read_ahead()
        met = int(self._asked[0][0]) if self._asked else self._sweep.peek()
        if met is None:  # no page is wanted: skip the rest of R
            met = self._buffer.levels[-1].leaves_at
        self._met = met
        while self._buffer.levels and self._buffer.levels[0].leaves_at <= met:
            yield from self._expire()

    def _read_ahead(self) -> None:
        """Request the next runs, as long as there are free buffers."""
        while self._reader.room:
            run = self._sweep.next()
            if run is None:
                return
            sequence, passed = run
            self._asked.append(passed)
            self._reader.ask(sequence)

    def _join_run(self) -> Results:
        """Join the oldest requested run with the tuples that waited when it was requested."""
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
        """Release the oldest level: its tuples have met all of R."""
        level, view = self._buffer.levels[0], self._buffer.view
        yield from self._emitter.emit(view)
        yield from self._let_go(view, level, 0, level.rows)
        self._buffer.leave()
        self._intake.give_back(level.charged)

    def _let_go(self, view: LevelView, level: Level, begin: int, end: int) -> Results:
        """Count tuples ``begin`` to ``end`` of a level, which need no further page, and emit their final results."""
        if begin == end:
            return
        matched = view.matched(level)[begin:end]
        self.stats.expiries += min(end, level.matchable) - min(begin, level.matchable)
        if self.spec.how == "inner" and self._deadlines is None:  # results are pairs alone, already emitted
            self.stats.count_done(matched)
            return
        numbers = level.numbers(begin, end)
        yield from self._emitter.finished_tuples(view, numbers, matched)
        self._done(view, numbers, matched)

    def close(self) -> None:
        """Stop the threads and close the files."""
        self._reader.close()
