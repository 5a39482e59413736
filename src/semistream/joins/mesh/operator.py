"""MeshJoin: MESHJOIN, the cyclic scan of R meshed with a sliding window over S."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import OperatorModel
from semistream.joins.base import JoinArguments, SemiStreamJoin
from semistream.joins.condition.run_codes import RunCodes
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.mesh.cost_model import MeshModel
from semistream.joins.mesh.scan import ScanSource, scan_source
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Intake
from semistream.joins.parts.memory_split import MemorySplit
from semistream.joins.parts.options import Check, at_least
from semistream.relation import AnyRelation, DiskCounts, PageRun

RunWatcher = Callable[[PageRun, RunCodes], None]
"""Is told of every run as it is joined, with its codes, while ``pages_passed`` is the page that it begins with."""


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
    computed for each run and sorted, and a scan ends with R's rows that have a null key, which lie apart. So it is with
    plain Parquet (`ParquetRelation`), which it scans as it is.
    """

    name = "mesh"
    takes_unclustered = True
    options: ClassVar[Mapping[str, Check]] = {"rows_per_step": at_least(1), "pages_per_step": at_least(1)}

    def __init__(
        self,
        relation: AnyRelation,
        stream: pa.Schema | JoinSpec,
        *,
        rows_per_step: int | None = None,
        pages_per_step: int | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        self.require_options({"rows_per_step": rows_per_step, "pages_per_step": pages_per_step})
        self._rows_per_step = rows_per_step
        self._asked_pages = pages_per_step
        self._null_counts = DiskCounts()  # of rows with a null key, which no disk reads
        self._run_watcher: RunWatcher | None = None
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> OperatorModel:
        """MESHJOIN with as large a window as the memory has room for."""
        relation = facts.relation
        split = split_memory(memory, relation, facts.spec, scan_of(relation, facts.spec))
        page_bytes = max(relation.nbytes // max(relation.num_pages, 1), 1)
        return MeshModel(
            split.slots,
            run_pages=max(min(split.run_bytes // page_bytes, split.run_pages), 1),
            packet_rows=split.admit_rows,
        )

    def arrange(self) -> None:
        relation = self.relation
        self._source = source = scan_of(relation, self.spec, self._asked_pages, self._null_counts)
        self._split = split = split_memory(self._memory, relation, self.spec, source)
        self._pages_per_step = split.run_pages
        self._window = StreamWindow(split.slots, self._memory)
        self._emitter = Emitter(self.spec, split, self._memory)
        self._scan = source.open(split.run_bytes, self._disk)
        self._position = np.empty(split.matches, np.int64)
        self._page, self._row = (np.empty(split.matches, np.int32) for _ in range(2))
        self._intake = Intake(self.spec, split, self._memory)
        self._admitted_now = 0  # tuples admitted since the last iteration

    @property
    def runs(self) -> int:
        """Iterations that make one scan of R: N_R / b, and those that read rows with a null key."""
        return self._scan.count_runs(self._pages_per_step)

    @property
    def pages_passed(self) -> int:
        """Pages that the scan has passed since R was opened, each joined as a whole, unless one is being joined now."""
        return self._scan.position

    @property
    def pages_of_scan(self) -> int:
        """Pages that make one scan: from any place on, so many pages later all of R has passed."""
        return self._scan.num_pages

    def watch_runs(self, watcher: RunWatcher) -> None:
        """Tell ``watcher`` of all that the scan meets, whether it has partners in the window or not."""
        self._run_watcher = watcher

    @property
    def disk_counts(self) -> DiskCounts:
        return self._disk.counts + self._null_counts

    def pages_to_drain(self) -> int:
        if not self._window.packets:
            return 0
        return self._window.packets[-1].entered + self._scan.num_pages - self._scan.asked

    def pages_asked(self) -> int:
        return self._scan.asked - self._scan.position

    def feed(self, batch: pa.RecordBatch) -> Results:
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
        self.stats.inserts += self._window.admit(admitted, self._scan.position)
        rows = admitted.sizes.size
        self._admitted_now += rows
        self.stats.rows_in += rows
        self.stats.packets += 1
        return rows

    def turn(self) -> Results:
        yield from self._iterate()
        yield from self._emitter.emit(self._window)

    def drain(self) -> Results:
        while self._window.packets:
            yield from self._iterate()

    def _iterate(self) -> Results:
        """One iteration of MESH Fig. 4; its results may stay staged for the next one to add to."""
        if not self._window.packets:
            return
        self.stats.steps += 1
        self._admitted_now = 0
        yield from self._join_next(self._run_end(self._scan.position))

    def _join_next(self, end: int) -> Results:
        """Join the next pages, up to ``end`` or to where a run or the oldest packet's scan of R ends; then let the
        packets go that have met all of R. No packet meets a page twice, wherever the runs were cut.
        """
        window, scan, num_pages = self._window, self._scan, self._scan.num_pages
        if num_pages:
            self._read_ahead()
            begin, end = scan.position, min(end, window.packets[0].entered + num_pages)
            while scan.position == begin:  # a page of Parquet may come in several pieces
                run = scan.take(end)
                pages = run.pages.size
                yield from self._join(run)
                del run  # the scan may replace its buffer
                scan.advance(pages)
        while window.packets and scan.position - window.packets[0].entered >= num_pages:
            yield from self._expire()

    def _read_ahead(self) -> None:
        """Ask for the run at hand and those after it that some tuple in the window will need."""
        newest = self._window.packets[-1].entered + self._scan.num_pages
        while self._scan.asked < newest and self._scan.can_ask:
            self._scan.ask(min(newest, self._run_end(self._scan.asked)))

    def _run_end(self, start: int) -> int:
        """How far a run from the page counter ``start`` may go."""
        return start + self._pages_per_step

    def _join(self, run: PageRun) -> Results:
        self.stats.probes += int(run.rows.sum())
        codes = self.spec.condition.codes_of(run)
        if self._run_watcher is not None:
            self._run_watcher(run, codes)
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
        self._done(self._window, np.arange(packet.first, packet.first + packet.rows), matched)
        self.stats.expiries += self._window.expire()
        self._intake.release(packet.sizes)

    def close(self) -> None:
        """End the background reader and close files."""
        self._scan.close()


def scan_of(
    relation: AnyRelation, spec: JoinSpec, pages: int | None = None, null_counts: DiskCounts | None = None
) -> ScanSource:
    """Where the scans come from; with rows of a null key, counted apart, if these can match."""
    scans_nulls = spec.condition.access == "scan"
    return scan_source(relation, pages, (null_counts or DiskCounts()) if scans_nulls else None)


def split_memory(memory: MemoryBudget, relation: AnyRelation, spec: JoinSpec, source: ScanSource) -> MemorySplit:
    """How a memory is split over window, page buffers and output."""
    return MemorySplit.of(
        memory,
        relation,
        spec,
        purpose=f"a mesh join with {relation.path}",
        index_bytes=source.index_bytes,
        slots_bytes=partial(StreamWindow.index_bytes, single_codes=spec.condition.single_codes),
        run_buffers=source.buffers,
        run_pages=source.run_pages,
        largest_page=source.largest_page,
        decoding_bytes=source.decoding_bytes,
    )
