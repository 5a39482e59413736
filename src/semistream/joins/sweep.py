"""SweepJoin: stream tuples in the order of their keys, met by an endless sweep over the pages that they need."""

from __future__ import annotations

from collections import deque
from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.base import JoinArguments, Results, SemiStreamJoin
from semistream.joins.emitter import Emitter
from semistream.joins.lane import Lane
from semistream.joins.memory_split import MemorySplit
from semistream.joins.row_sizes import row_sizes
from semistream.joins.stream_buffer import StreamBuffer
from semistream.kernels.sort import partition_rows, sort_codes
from semistream.kernels.sweep import flag_pages
from semistream.relation import PageSequence, PageSlots, Relation, optimal_plan
from semistream.relation.run_reader import RunReader

_LANES = 5
_THREADS = 3
_LANE_BYTES = 2 << 20
_ADMIT_ROWS = 1 << 16  # a level: what is sorted at once should stay in the processor's cache
_HORIZON = 4  # runs that are planned ahead


class Sweep:
    """The pages that tuples wait for, and the way over them: in the order of the disk, round and round.

    Places are positions in the order of the disk, and ``passed`` counts the places that were read or passed over since
    the start. Pages that nobody waits for are passed over if a seek is cheaper than to read them along (SSIJ IV-D).
    """

    def __init__(self, relation: Relation, reader: RunReader, *, run_bytes: int, run_pages: int) -> None:
        self._table = relation.table
        self._reader = reader
        self._run_bytes = run_bytes
        self._run_pages = run_pages
        self._slots = PageSlots.of(relation.table)
        self._order = relation.table.scan_order()
        self.places = np.empty(self._order.size, np.int32)
        self.places[self._order] = np.arange(self._order.size, dtype=np.int32)
        self.wanted = np.zeros(self._order.size, np.bool_)  # by place
        self.passed = 0
        self._plan: deque[PageSequence] = deque()

    def want(self, codes) -> None:
        """Tuples with these codes, ascending, wait."""
        flag_pages(codes, self._table.first_code, self._table.last_code, self.places, self.wanted)
        self._plan.clear()

    def next(self) -> tuple[PageSequence, np.ndarray] | None:
        """The next sequence to read and the count at which each of its pages is passed; None if nothing is wanted."""
        if not self._plan and not self._extend():
            return None
        sequence = self._plan.popleft()
        places = self.places[sequence.pages].astype(np.int64)
        self.wanted[places] = False
        count, at = len(self._table), self.passed % max(len(self._table), 1)
        places += self.passed - at + (count if places[0] < at else 0)
        self.passed = int(places[-1]) + 1
        return sequence, places

    def _extend(self) -> bool:
        """Plan the way over the wanted pages that come next."""
        count = len(self._table)
        at = self.passed % max(count, 1)
        most = _HORIZON * self._run_pages
        for begin, end in ((at, count), (0, at)):
            # A window that may hold as many as are planned for if most are wanted, else all that is left.
            places = np.flatnonzero(self.wanted[begin : min(end, begin + 2 * most)]) + begin
            if places.size < most and begin + 2 * most < end:
                places = np.flatnonzero(self.wanted[begin:end]) + begin
            if places.size:
                plan = list(optimal_plan(
                    self._slots, self._order[places[:most]], self._reader.costs,
                    most_bytes=self._run_bytes, most_pages=None,
                ))  # fmt: skip
                if places.size > most and len(plan) > 1:
                    plan.pop()  # it may go on behind the horizon
                self._plan.extend(plan)
                return True
        return False

    @property
    def done(self) -> bool:
        """Whether nobody waits for a page."""
        return not self._plan and not self.wanted.any()


class SweepJoin(SemiStreamJoin):
    """x"""

    name = "sweep"

    def __init__(self, relation: Relation, stream_schema: pa.Schema, **arguments: Unpack[JoinArguments]) -> None:
        super().__init__(relation, stream_schema, **arguments)
        codec = relation.codec
        key = stream_schema.get_field_index(self.spec.stream_keys[0])
        in_place = codec.in_place_code and stream_schema.types[key] == codec.types[0]
        flagged = True
        pages = relation.num_pages
        split = MemorySplit.of(
            self.budget,
            relation,
            self.spec,
            purpose=f"a sweep join with {relation.path}",
            index_bytes=relation.table.memory_bytes + 3 * 9 * pages,
            slots_bytes=lambda slots: StreamBuffer.index_bytes(slots, code_stored=in_place, flagged=flagged),
            run_buffers=_LANES,
        )
        self._split = split
        self._buffer = StreamBuffer(stream_schema, split.slots, key if in_place else None, flagged=flagged)
        self._reader = relation.reader(run_bytes=split.run_bytes, disk=self._disk, buffers=_LANES, threads=_THREADS)
        self._sweep = Sweep(relation, self._reader, run_bytes=split.run_bytes, run_pages=split.run_pages)
        self._lane_bytes = _LANE_BYTES
        self._idle = deque(self._make_lane() for _ in range(_LANES))
        self._busy_lanes: deque[tuple[Lane, int]] = deque()

    def _make_lane(self) -> Lane:
        emitter = Emitter(self.spec, self.relation.codec, MemoryBudget(2 * self._lane_bytes), self._lane_bytes)
        return Lane(self._buffer, emitter, self._split.matches, pairs=self.spec.pairs, keeps_pairs=False)

    def _push(self, batch: pa.RecordBatch) -> Results:
        done = 0
        while done < batch.num_rows:
            self._read_ahead()
            room = min(self._buffer.room, _ADMIT_ROWS)
            if room == 0:
                yield from self._iterate()
                continue
            piece = batch.slice(done, room)
            done += piece.num_rows
            self._admit(piece)

    def _admit(self, piece: pa.RecordBatch) -> None:
        codes, possible = self.relation.codec.encode([piece.column(n) for n in self.spec.stream_keys])
        if possible is None:
            codes, order = sort_codes(codes)
        else:
            rows, flagged = partition_rows(possible)
            codes, order = sort_codes(codes[rows[:flagged]])
            order = np.concatenate([rows[order], rows[flagged:]])
        passed = self._sweep.passed
        self._buffer.admit(piece, row_sizes(piece), codes, order, passed, passed + self.relation.num_pages)
        self._sweep.want(codes)
        self.stats.rows_in += piece.num_rows
        self.stats.inserts += codes.size

    def _step(self) -> Results:
        yield from self._iterate()

    def _flush(self) -> Results:
        while self._buffer.levels:
            yield from self._iterate()

    def _iterate(self) -> Results:
        if not self._buffer.levels:
            return
        self.stats.steps += 1
        self._read_ahead()
        if self._busy_lanes:
            lane, _ = self._busy_lanes[0]
            piece = self._reader.take()
            while True:
                if piece.batch is not None:
                    yield piece.batch
                if piece.last:
                    break
                piece = self._reader.submit(lane.advance).result()
            lane.finish()
            self._busy_lanes.popleft()
            self._idle.append(lane)
            self._reader.give_back()
            self._read_ahead()
        if self._busy_lanes:
            met = self._busy_lanes[0][1]
        else:
            met = self._buffer.levels[-1].leaves_at
        while self._buffer.levels and self._buffer.levels[0].leaves_at <= met:
            yield from self._expire()

    def _read_ahead(self) -> None:
        while self._idle:
            found = self._sweep.next()
            if found is None:
                return
            sequence, passed = found
            lane, view = self._idle.popleft(), self._buffer.view()
            self._busy_lanes.append((lane, int(passed[0])))
            self._reader.ask(sequence, lambda run, lane=lane, passed=passed, view=view: lane.start(run, passed, view))

    def _expire(self) -> Results:
        level = self._buffer.leave()
        self.stats.count_done(self._buffer.matched[level.begin : level.end])
        self.stats.expiries += level.matchable - level.begin
        yield from ()

    def close(self) -> None:
        self._reader.close()
