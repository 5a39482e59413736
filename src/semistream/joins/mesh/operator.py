"""MeshJoin (MESHJOIN): a cyclic scan of R meshed with a sliding window over S."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import OperatorModel
from semistream.joins.base import SemiStreamJoin
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
from semistream.joins.requirements import JoinArguments
from semistream.relation import AnyRelation, DiskCounts, PageRun

RunWatcher = Callable[[PageRun, RunCodes], None]
"""Called with every run and its codes as it is joined; ``pages_passed`` is then the count at its first page."""


class MeshJoin(SemiStreamJoin):
    """MESHJOIN: every iteration reads some pages of R and joins them with all tuples in the window.

    R is scanned over and over. A stream tuple enters the window wherever the scan stands and leaves one scan later,
    when it has met every page once. R needs no index. The result is exact (MESH Theorem 3.1).

    =====================  ===================================================================================
    MESH                   here
    =====================  ===================================================================================
    b                      ``pages_per_step``: pages read by an iteration
    w                      ``rows_per_step``: most tuples admitted between two iterations
    H, Q                   `StreamWindow`: the codes of the window, sorted instead of hashed, and its packets
    N_R                    ``relation.num_pages``
    =====================  ===================================================================================

    Fig. 4 requires N_R to be divisible by b. Here the last run of a scan may be shorter, and a packet expires when it
    has met every run, not when the queue is full. The next pages are read while these are joined.

    The operator takes every condition (MESH 3.4). Where R's clustered codes cannot help, the codes of the equated
    columns are computed for each run and sorted, and a scan ends with R's rows with a null key, which are stored apart.
    Plain Parquet (`ParquetRelation`) is scanned in the same way.

    Parameters
    ----------
    relation : Relation or ParquetRelation
        The relation R, in any order.
    stream : pyarrow.Schema or JoinSpec
        The columns of the stream, or a resolved join.
    rows_per_step : int, optional
        w, most tuples admitted between two iterations. Default: as many as fit. Under load that admits as many per
        scan as a fixed w, and a batch followed by a pause is finished after one scan.
    pages_per_step : int, optional
        b, pages read by an iteration. Default: as many as fit in up to 4 MiB. Not for plain Parquet, which is joined
        page by page.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     grades = Relation.build(pa.table({"from": [0, 50], "grade": ["B", "A"]}), f"{folder}/r", key="from")
    ...     tests = pa.record_batch({"points": [70, 20]})
    ...     with MeshJoin(grades, tests.schema, where="s.points > r.from", columns=["grade"], memory="1MB") as join:
    ...         results = [*join.push(tests), *join.flush()]
    >>> sorted(zip(*pa.Table.from_batches(results).to_pydict().values()))
    [(20, 'B'), (70, 'A'), (70, 'B')]

    References
    ----------
    MESH 3.1: Fig. 4, Theorem 3.1; MESH 3.4 (conditions other than equality).
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
        self._null_counts = DiskCounts()  # of rows with a null key, which ``_disk`` does not count
        self._run_watcher: RunWatcher | None = None
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> OperatorModel:
        """Return the cost model with as large a window as fits in ``memory``."""
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
        """Iterations of one scan of R: N_R / b, plus those that read rows with a null key."""
        return self._scan.count_runs(self._pages_per_step)

    @property
    def pages_passed(self) -> int:
        """Pages that the scan has fully joined since R was opened."""
        return self._scan.position

    @property
    def pages_of_scan(self) -> int:
        """Pages of one scan: after this many, from any position, all of R has passed."""
        return self._scan.num_pages

    def watch_runs(self, watcher: RunWatcher) -> None:
        """Call ``watcher`` with every run that the scan joins, whether it has matches in the window or not."""
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
        """Admit the tuples from ``start`` on that fit now; return their number."""
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
        """Do one iteration of MESH Fig. 4; results may stay staged for the next one to add to."""
        if not self._window.packets:
            return
        self.stats.steps += 1
        self._admitted_now = 0
        yield from self._join_next(self._run_end(self._scan.position))

    def _join_next(self, end: int) -> Results:
        """Join the next pages, then expire the packets that have met all of R.

        The pages end at ``end``, at the end of a run, or where the oldest packet has met all of R. No packet meets a
        page twice, wherever the runs are cut.
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
        """Request the current run and those after it that some tuple in the window will need."""
        newest = self._window.packets[-1].entered + self._scan.num_pages
        while self._scan.asked < newest and self._scan.can_ask:
            self._scan.ask(min(newest, self._run_end(self._scan.asked)))

    def _run_end(self, start: int) -> int:
        """Return the latest end of a run that starts at page counter ``start``."""
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
        """Finish the oldest packet: its tuples have met all of R."""
        packet, matched = self._window.packets[0], self._window.oldest_matched()
        yield from self._emitter.finished(self._window, packet.batch, matched)
        self._done(self._window, np.arange(packet.first, packet.first + packet.rows), matched)
        self.stats.expiries += self._window.expire()
        self._intake.release(packet.sizes)

    def close(self) -> None:
        """Stop the background reader and close the files."""
        self._scan.close()


def scan_of(
    relation: AnyRelation, spec: JoinSpec, pages: int | None = None, null_counts: DiskCounts | None = None
) -> ScanSource:
    """Return the source of scans; if rows with a null key can match, it scans and counts them too."""
    scans_nulls = spec.condition.access == "scan"
    return scan_source(relation, pages, (null_counts or DiskCounts()) if scans_nulls else None)


def split_memory(memory: MemoryBudget, relation: AnyRelation, spec: JoinSpec, source: ScanSource) -> MemorySplit:
    """Split ``memory`` over window, page buffers and output."""
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
