"""SemiStreamingIndexJoin (SSIJ): caches the most useful pages of R and reads the others for many tuples at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.run_codes import RunCodes
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Intake
from semistream.joins.parts.options import Check, at_least, one_of
from semistream.joins.requirements import JoinArguments
from semistream.joins.ssij.cost_model import IndexModel
from semistream.joins.ssij.input_buffer import InputBuffer
from semistream.joins.ssij.kernels import CACHED, WAITS, look_up, next_wanted
from semistream.joins.ssij.memory import RUN_BUFFERS, IndexMemory
from semistream.joins.ssij.page_cache import PageCache
from semistream.joins.ssij.replacement import POLICIES, Replacement
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.relation import (
    PageRun,
    PageSequence,
    PageSlots,
    ReadPlan,
    Relation,
    greedy_plan,
    optimal_plan,
)
from semistream.relation.format.row_sizes import row_sizes

_STREAM_INDEX = "stream index"

FindPairs = Callable[[RunCodes, Int64s, Int32s, Int32s], Iterator[tuple[Int64s, Int32s, Int32s]]]


class SemiStreamingIndexJoin(SemiStreamJoin):
    """SSIJ: hot pages of R stay in memory; tuples that need other pages wait and share one read plan.

    Tuples gather in an input buffer (pending phase). An online phase looks them up in R's index and joins those whose
    pages are cached; the others move to the stream buffer. When enough tuples wait there, a join phase reads the pages
    they need, each once, by the cheapest plan of seeks and sequential reads. It joins them and keeps the pages of the
    greatest utility in memory. The result is exact. Conditions may be ranges of R's key; a tuple then needs all pages
    in its range.

    =====================  ===================================================================================
    SSIJ                   here
    =====================  ===================================================================================
    DR, its index          ``relation`` and its page table, held in memory
    IB, IB_thresh          `InputBuffer`, ``input_threshold`` tuples
    SB, SB_thresh          `StreamWindow`, ``stream_threshold`` tuples
    II                     the sorted codes of SB, over the page table: the tuples waiting for a page are those
                           in its code range. ``PageCache.waiting`` has the lengths of the lists.
    CR, utility counters   `PageCache`
    M                      ``memory``. Index, page buffers and output take fixed parts; the rest is one pool for
                           IB, SB and CR (`IndexMemory`), in which the stream displaces cached pages
    P_u, RP                the uncached pages with ``waiting`` tuples, and their ``plan``
    S, T                   the costs of the disk
    maxScan                ``pages_per_read``
    =====================  ===================================================================================

    The operator departs from the paper in four points:

    - Algorithm 1 joins a tuple that needs several pages with the cached ones at once (lines 3-4) and with the others
      later (13-15). A page cached or evicted in between would be met twice or not at all. Here such a tuple waits as a
      whole if any page is missing, and the join phase joins it with all its pages, cached or read.
    - Pages are read into separate buffers, and those to keep are copied into the cache. A sequence therefore evicts
      nothing, and ToRemove is evicted before the reading instead of bit by bit (Algorithm 2, lines 5-7).
    - The caller drives the operator: no tuple comes during a join phase, so ToKeep is not revised in it (IV-C).
    - One plan covers all of P_u, unless a sixteenth of the pool cannot hold it. Then consecutive stretches of R are
      planned one by one, each at the cost of at most one more seek per file.

    Parameters
    ----------
    relation : Relation
        The relation R, in pages clustered by key; plain Parquet is refused.
    stream : pyarrow.Schema or JoinSpec
        The columns of the stream, or a resolved join.
    input_threshold : int, optional
        IB_thresh, tuples that start an online phase. Default: 250,000 (Table II), at most an eighth of the pool.
    stream_threshold : int, optional
        SB_thresh, waiting tuples that start a join phase. Default: 1,000,000, or 400,000 if memory is at most 1% of R
        (Table II), and at most half of the pool. If memory runs short, phases start earlier.
    pages_per_read : int, optional
        maxScan, most pages in one sequential read. Default: as many as fit in up to 4 MiB.
    plan : {"optimal", "greedy"}
        Read plan of a join phase (SSIJ IV-D).
    cache_policy : {"utility", "lru"}
        Rule for the pages to keep: SSIJ's utility, or least recently used for comparison (VI-D).
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stores = Relation.build(pa.table({"id": [1, 2], "city": ["Athens", "Bonn"]}), f"{folder}/r", key="id")
    ...     sales = pa.record_batch({"store": [2, 3, 2]})
    ...     with SemiStreamingIndexJoin(stores, sales.schema, on={"store": "id"}, memory="1MB") as join:
    ...         first = [*join.push(sales), *join.flush()]  # reads the page and caches it
    ...         again = [*join.push(sales), *join.flush()]
    ...         again[0].to_pydict(), join.stats.pages_read, join.stats.cache_hits
    ({'store': [2, 2], 'city': ['Bonn', 'Bonn']}, 1, 2)

    References
    ----------
    SSIJ III, IV: Algorithms 1 and 2, Table II.
    """

    name = "index"
    needs_index = True
    options: ClassVar[Mapping[str, Check]] = {
        "input_threshold": at_least(1),
        "stream_threshold": at_least(1),
        "pages_per_read": at_least(1),
        "plan": one_of("optimal", "greedy"),
        "cache_policy": one_of(*POLICIES),
    }

    def __init__(
        self,
        relation: Relation,
        stream: pa.Schema | JoinSpec,
        *,
        input_threshold: int | None = None,
        stream_threshold: int | None = None,
        pages_per_read: int | None = None,
        plan: str = "optimal",
        cache_policy: str = "utility",
        **arguments: Unpack[JoinArguments],
    ) -> None:
        thresholds = {
            "input_threshold": input_threshold,
            "stream_threshold": stream_threshold,
            "pages_per_read": pages_per_read,
        }
        self.require_options({**thresholds, "plan": plan, "cache_policy": cache_policy})
        self._policy: Replacement = POLICIES[cache_policy]()
        self._thresholds = thresholds
        self._plans_greedily = plan == "greedy"
        self._carried: PageCache | None = None  # cached pages survive a new arrangement of the join
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> IndexModel:
        """Return the cost model; its cache gets the free part of the pool at the start of a join phase."""
        relation, spec = facts.relation, facts.spec
        assert isinstance(relation, Relation)
        layout = IndexMemory.of(
            memory, relation, spec, input_threshold=None, stream_threshold=None, pages_per_read=None
        )
        return IndexModel(
            input_rows=layout.input_rows,
            stream_rows=layout.stream_rows,
            cached_pages=PageCache.room_beside(relation, layout.pool, layout.waiting_bytes(spec.expected_row_bytes)),
            run_bytes=layout.split.run_bytes,
            run_pages=layout.split.run_pages,
        )

    def arrange(self) -> None:
        relation, budget = self.relation, self._memory
        memory = IndexMemory.of(budget, relation, self.spec, **self._thresholds)
        self._slots = PageSlots.of(relation.table)
        self._cache = self._carried = self._arrange_cache(memory.pool)
        self._pool = memory.pool - self._cache.frame_index_bytes
        # A single tuple must fit, however wide.
        split = replace(memory.split, payload_bytes=self._pool - memory.tuple_bytes)
        self._layout, self._split = memory, split
        single = self.spec.condition.single_codes
        self._input = InputBuffer(memory.input_rows, budget, memory.packet_bytes, single_codes=single)
        self._window = StreamWindow(memory.stream_slots, budget)
        self._emitter = Emitter(self.spec, split, budget)
        self._reader = relation.reader(run_bytes=split.run_bytes, disk=self._disk, buffers=RUN_BUFFERS)
        self._intake = Intake(self.spec, split, budget)
        self._position = np.empty(split.matches, np.int64)
        self._page, self._row = (np.empty(split.matches, np.int32) for _ in range(2))
        self._awaited = 0  # pages needed by the tuples in the stream buffer

    def _arrange_cache(self, pool: int) -> PageCache:
        """Return the previous cache with the pages that this version still has and memory allows, or a new one."""
        relation, budget, cache = self.relation, self._memory, self._carried
        if cache is None or not cache.suits(relation, pool):
            self._carried = None  # free it before allocating another
            cache = PageCache(relation, pool, budget, self._policy)
        cache.budget = budget
        budget.charge("page index", cache.frame_index_bytes)
        if cache.relation is not relation:
            cache.carry_over(relation, relation.pages_kept_from(cache.relation))
        cache.shrink(pool - cache.frame_index_bytes)
        cache.charge()
        return cache

    @property
    def input_threshold(self) -> int:
        """Tuples that start an online phase (IB_thresh)."""
        return self._layout.input_rows

    @property
    def stream_threshold(self) -> int:
        """Waiting tuples that start a join phase (SB_thresh)."""
        return self._layout.stream_rows

    def pages_to_drain(self) -> int:
        """Return the awaited pages plus one for each tuple not looked up yet; all of R if such a tuple has a range."""
        pages = self.relation.num_pages
        if self._input.rows and not self.spec.condition.single_codes:
            return pages
        return min(self._awaited + self._input.rows, pages)

    def feed(self, batch: pa.RecordBatch) -> Results:
        done = 0
        while done < batch.num_rows:
            yield from self._due_phases()
            admitted = self._admit(batch, done)
            done += admitted
            if admitted == 0:
                yield from self.turn()
        yield from self._due_phases()

    def _due_phases(self) -> Results:
        """Run phases as long as a threshold is reached."""
        while True:
            if self._window.held >= self.stream_threshold:
                yield from self._join_phase()
            elif self._input.rows >= self.input_threshold:
                yield from self._online_phase()
            else:
                return

    def turn(self) -> Results:
        """Run one phase, even if no threshold is reached."""
        if self._input.rows:
            yield from self._online_phase()
        elif self._window.held:
            yield from self._join_phase()

    def _admit(self, batch: pa.RecordBatch, start: int) -> int:
        """Admit as many tuples as fit in the input buffer and the pool, evicting cached pages for them (SSIJ IV-C)."""
        rows = min(self._input.slots - self._input.rows, self._split.admit_rows)
        sizes = row_sizes(batch.slice(start, rows))
        self._split.require_narrow(int(sizes.max()), self._memory)
        ends = np.cumsum(sizes + self._layout.tuple_bytes)
        room = self._pool - self._stream_bytes
        self._cache.shrink(room - int(ends[-1]))
        fits = int(np.searchsorted(ends, room - self._cache.nbytes, "right"))
        admitted = self._intake.admit(batch, start, fits, self._layout.packet_bytes)
        if admitted is None:
            return 0
        rows = admitted.sizes.size
        self._memory.charge(_STREAM_INDEX, rows * self._layout.tuple_bytes)
        self._input.append(admitted)
        self.stats.rows_in += rows
        self.stats.packets += 1
        return rows

    @property
    def _stream_bytes(self) -> int:
        """Bytes of the pool that the stream takes."""
        return self._intake.held_bytes + (self._input.rows + self._window.held) * self._layout.tuple_bytes

    def _release(self, sizes: Int64s) -> None:
        self._intake.release(sizes)
        self._memory.release(_STREAM_INDEX, sizes.size * self._layout.tuple_bytes)

    def _online_phase(self) -> Results:
        """Look up the input buffer, and join the tuples that need no page from disk (Algorithm 1)."""
        self.stats.steps += 1
        cache, table = self._cache, self.relation.table
        asked = self._input.in_order()
        outcome = np.empty(asked.size, np.int8)
        self.stats.probes += asked.size
        high = asked.low if asked.high is None else asked.high
        self._awaited += look_up(
            asked.low, high, table.first_code, table.last_code, cache.frame_of, cache.waiting, cache.met, outcome
        )
        served = asked.kept(outcome == CACHED)
        if served.size:
            yield from self._join(self._input, cache.met_pages(), served.matches)
            self.stats.cache_hits += served.size
            cache.count_joined()
        wait = np.zeros(self._input.rows, np.bool_)
        wait[asked.tuples[outcome == WAITS]] = True
        yield from self._empty_input(wait)

    def _empty_input(self, wait: Bools) -> Results:
        """Move the tuples that must ``wait`` to the stream buffer, and finish the others."""
        gone = np.flatnonzero(~wait)
        if gone.size:
            matched = self._input.matched(gone)
            yield from self._emitter.finished_tuples(self._input, gone, matched)
            yield from self._emitter.emit(self._input)
            self._done(self._input, gone, matched)
        for tuples, sizes in self._input.drain(wait):
            if tuples is not None:
                self.stats.inserts += self._window.admit(tuples, 0)
            self._release(sizes)

    def _join_phase(self) -> Results:
        """Join all waiting tuples with their pages, and keep the pages of the greatest utility (Algorithm 2)."""
        self.stats.steps += 1
        cache, window = self._cache, self._window
        window.merge_all()
        kept = cache.choose(self._pool - self._stream_bytes)
        run = cache.awaited_pages()
        if run.pages.size:
            yield from self._join(window, run, window.probe)
            cache.served(run.pages)
        cache.keep(kept)
        for run in self._reader.read_all(self._sequences()):
            yield from self._join(window, run, window.probe)
            cache.put(run, kept[run.pages])
            cache.served(run.pages)
        cache.end_phase()
        self._awaited = 0
        while window.packets:
            yield from self._expire()

    def _sequences(self) -> Iterator[PageSequence]:
        """Yield the sequences of a join phase's read plan, made for as many pages at a time as memory allows."""
        wanted = np.empty(self._layout.planned_pages, np.intp)
        begin = 0
        while found := next_wanted(self._cache.waiting, begin, wanted):
            begin = int(wanted[found - 1]) + 1
            yield from self._plan(wanted[:found])

    def _plan(self, wanted: npt.NDArray[np.intp]) -> ReadPlan:
        costs, most_bytes, most_pages = self._reader.costs, self._split.run_bytes, self._split.run_pages
        if not self._plans_greedily:
            return optimal_plan(self._slots, wanted, costs, most_bytes=most_bytes, most_pages=most_pages)
        # SSIJ IV-D: reading on to the next wanted page pays if it is less than maxDist = 1 + S / T pages away.
        page_s = costs.request_s(self.relation.nbytes // self.relation.num_pages, 1) - costs.seek_s
        unwanted = math.ceil(costs.seek_s / page_s) - 1 if page_s > 0 else self.relation.num_pages
        return greedy_plan(
            self._slots, wanted, costs, most_unwanted=max(unwanted, 0), most_bytes=most_bytes, most_pages=most_pages
        )

    def _join(self, stream: InputBuffer | StreamWindow, run: PageRun, find: FindPairs) -> Results:
        """Verify the candidate pairs that ``find`` yields for a run, mark their tuples, and emit the results."""
        codes = self.spec.condition.codes_of(run)
        for tuples, page, row in find(codes, self._position, self._page, self._row):
            if tuples.size:
                joined = self._emitter.verified(stream, tuples, run, page, row)
                stream.mark(tuples[joined])
                if self.spec.pairs:
                    yield from self._emitter.stage(stream, tuples[joined], run, page[joined], row[joined])

    def _expire(self) -> Results:
        """Finish the oldest packet: its tuples have met all their pages."""
        packet, matched = self._window.packets[0], self._window.oldest_matched()
        yield from self._emitter.finished(self._window, packet.batch, matched)
        self._done(self._window, np.arange(packet.first, packet.first + packet.rows), matched)
        self.stats.expiries += self._window.expire()
        self._release(packet.sizes)

    def close(self) -> None:
        """Stop the background reader and close the files."""
        self._reader.close()
