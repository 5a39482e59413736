"""MeshJoin: MESHJOIN, the cyclic scan of R meshed with a sliding window over S."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.joins.base import JoinArguments, Results, SemiStreamJoin
from semistream.joins.emitter import Emitter
from semistream.joins.intake import Intake
from semistream.joins.memory_split import MemorySplit
from semistream.joins.stream_window import StreamWindow
from semistream.relation import DiskCounts, PageRun, Relation
from semistream.relation.null_pages import WORKING_BYTES, NullKeyPages

_READ_AHEAD = 2  # runs: the disk goes on while the consumer takes a batch of results


class MeshJoin(SemiStreamJoin):
    """MESHJOIN (MESH 3.1): every iteration reads some pages of R and joins them with all tuples in the window.

    R is scanned over and over; a stream tuple enters the window wherever the scan stands and leaves when the scan is
    there again, having met every page once. R needs no index for it. The result is exact (MESH Theorem 3.1).

    =====================  ===================================================================================
    MESH                   here
    =====================  ===================================================================================
    b                      ``pages_per_step``: pages read by an iteration (by default, up to 4 MB of them)
    w                      ``rows_per_step``: most tuples admitted between two iterations (by default, all that
                           have room: under load this admits as many per cycle as a fixed w, and a batch that is
                           followed by a pause is through after one scan)
    H, Q                   `StreamWindow`: the codes of the window in order instead of hashed, and its packets
    N_R                    ``relation.num_pages``
    =====================  ===================================================================================

    It departs from Fig. 4 where that only holds for N_R divisible by b: the last run of a scan may be shorter, and a
    packet expires when it has met every run, not when the queue is full. The next pages are read while these are
    joined.

    It takes every condition (MESH 3.4). Where R's clustered codes are of no use, those of the equated columns are
    computed for each run and sorted, and a scan ends with R's rows that have a null key, which lie apart.
    """

    name = "mesh"

    def __init__(
        self,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        rows_per_step: int | None = None,
        pages_per_step: int | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        super().__init__(relation, stream_schema, **arguments)
        for option, value in (("rows_per_step", rows_per_step), ("pages_per_step", pages_per_step)):
            if value is not None and value < 1:
                raise InvalidArgument(f"{option} is {value}; it must be at least 1.")
        condition = self.spec.condition
        self._nulls = NullKeyPages(relation) if condition.access == "scan" and relation.null_key_rows else None
        index_bytes = relation.table.memory_bytes + 17 * relation.num_pages  # and the scan's order, cuts and checks
        split = MemorySplit.of(
            self.budget,
            relation,
            self.spec,
            purpose=f"a mesh join with {relation.path}",
            index_bytes=index_bytes + (WORKING_BYTES if self._nulls else 0),
            slots_bytes=partial(StreamWindow.index_bytes, single_codes=condition.single_codes),
            run_buffers=_READ_AHEAD + (3 if self._nulls else 1),  # a page of null keys is copied twice
            run_pages=pages_per_step,
            largest_page=self._nulls.largest if self._nulls else 0,
        )
        self._rows_per_step = rows_per_step
        self._order = relation.table.scan_order()
        self._cuts = relation.table.cut_runs(self._order, split.run_bytes, split.run_pages)
        self._window = StreamWindow(split.slots, self.budget)
        self._emitter = Emitter(self.spec, split, self.budget)
        self._reader = relation.reader(run_bytes=split.run_bytes, disk=self._disk, buffers=_READ_AHEAD + 1)
        self._position = np.empty(split.matches, np.int64)
        self._page, self._row = (np.empty(split.matches, np.int32) for _ in range(2))
        self._intake = Intake(self.spec, split, self.budget)
        self._null_pages: Iterator[PageRun] = iter(())
        self._null_runs = self._nulls.count if self._nulls else 0
        self._admitted_now = 0  # tuples admitted since the last iteration
        self._asked = 0  # runs asked of the reader, and
        self._joined = 0  # runs joined, since the start

    @property
    def runs(self) -> int:
        """Iterations that make one scan of R: N_R / b, and those that read rows with a null key."""
        return self._page_runs + self._null_runs

    @property
    def _page_runs(self) -> int:
        return self._cuts.size - 1

    @property
    def _disk_counts(self) -> DiskCounts:
        return self._disk.counts + self._nulls.counts if self._nulls else self._disk.counts

    def _push(self, batch: pa.RecordBatch) -> Results:
        done = 0
        while done < batch.num_rows:
            admitted = self._admit(batch, done)
            done += admitted
            if admitted == 0:
                yield from self._iterate()
        yield from self._emitter.emit(self._window)

    def _admit(self, batch: pa.RecordBatch, start: int) -> int:
        """Take as many tuples from ``start`` on as there is room for now."""
        room = self._window.free
        if self._rows_per_step is not None:
            room = min(room, self._rows_per_step - self._admitted_now)
        admitted = self._intake.admit(batch, start, room)
        if admitted is None:
            return 0
        self.stats.inserts += self._window.admit(admitted, self._joined)
        rows = admitted.sizes.size
        self._admitted_now += rows
        self.stats.rows_in += rows
        return rows

    def _step(self) -> Results:
        yield from self._iterate()
        yield from self._emitter.emit(self._window)

    def _flush(self) -> Results:
        while self._window.packets:
            yield from self._iterate()

    def _iterate(self) -> Results:
        """One iteration of MESH Fig. 4; its results may stay staged for the next one to add to."""
        if not self._window.packets:
            return
        self.stats.steps += 1
        self._admitted_now = 0
        if self.runs:
            self._read_ahead()
            yield from self._join(self._take_run())
            self._reader.give_back()
            self._joined += 1
        while self._window.packets and self._joined - self._window.packets[0].entered >= self.runs:
            yield from self._expire()

    def _read_ahead(self) -> None:
        """Ask for this iteration's run and those after it that some tuple in the window will need."""
        newest = self._window.packets[-1].entered + self.runs
        while self._asked < min(newest, self._joined + _READ_AHEAD + 1):
            at = self._asked % self.runs
            if at < self._page_runs:
                self._reader.ask(self._order[self._cuts[at] : self._cuts[at + 1]])
            self._asked += 1

    def _take_run(self) -> PageRun:
        """This iteration's run: the next pages, or behind the last of them the next rows with a null key."""
        at = self._joined % self.runs
        if self._nulls is None or at < self._page_runs:
            return self._reader.take()
        if at == self._page_runs:
            self._null_pages = self._nulls.read()
        return next(self._null_pages)

    def _join(self, run: PageRun) -> Results:
        self.stats.probes += int(run.rows.sum())
        codes = self.spec.condition.codes_of(run)
        for tuples, page, row in self._window.probe(codes, self._position, self._page, self._row):
            if tuples.size:
                joined = self._emitter.verified(self._window, tuples, run, page, row)
                self._window.mark(tuples[joined])
                if self.spec.pairs:
                    yield from self._emitter.stage(self._window, tuples[joined], run, page[joined], row[joined])

    def _expire(self) -> Results:
        """Let the oldest packet go: its tuples have met all of R."""
        packet, matched = self._window.packets[0], self._window.oldest_matched()
        yield from self._emitter.finished(self._window, packet.batch, matched)
        self.stats.count_done(matched)
        self.stats.expiries += self._window.expire()
        self._intake.release(packet.sizes)

    def close(self) -> None:
        """End the background reader and close files."""
        self._reader.close()
        self._null_pages = iter(())
