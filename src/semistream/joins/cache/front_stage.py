"""FrontStage: a cache of R's hottest tuples in front of any operator."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import OperatorModel
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.base import JoinArguments, SemiStreamJoin
from semistream.joins.cache.admission import CacheAdmission
from semistream.joins.cache.batch_rows import BatchRows
from semistream.joins.cache.hot_keys import HotKeys
from semistream.joins.cache.hot_keys_parquet import ScatteredHotKeys
from semistream.joins.cache.index import ProbeRoom
from semistream.joins.cache.memory import CACHE, LEAST_FRAMES, FrontMemory, cached_columns, fronted_model
from semistream.joins.cache.tuple_cache import TupleCache
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.options import Check, anything
from semistream.kernels.array_types import Bools, Int32s
from semistream.relation import AnyRelation, DiskCounts, PageRun, Relation
from semistream.relation.format.row_sizes import widest

_MISSED = "missed tuples"
_SHARE = 0.25  # of the memory, for the cache
_AGED_AFTER = 2  # stream tuples for each cached row; and as many that were missed are through as wait


def require_share(option: str, value: float) -> None:
    """Refuse a share of the memory that leaves too little for the join behind the cache."""
    if not 0 <= value <= 0.9:
        raise InvalidArgument(f"{option} is {value}; give a share of the memory from 0 to 0.9.")


class FrontStage(SemiStreamJoin):
    """The generic front stage (FRONT 3): tuples with a hot key are joined at once, the others by the join behind it.

    The cache holds rows of R by key, with all rows of a key, so that a tuple whose key is there is through without a
    read. All other tuples go to the wrapped join, whose results are the frequency recorder's input: what it reads from
    R for the stream is what the cache misses. Rows of keys that it is asked for more often than ``threshold`` are noted
    as their pages come by and take the place of the cached rows asked for least. With `MeshJoin` behind it, it is
    CMESHJOIN. The result is exact, and the bytes of both come out of one budget.

    =====================  ===================================================================================
    FRONT                  here
    =====================  ===================================================================================
    H_R                    `TupleCache`: rows in pages like R's, found by a hash index of their key codes
    H_S, Q, w, b           the wrapped join's
    frequency recorder     the frequencies of cached rows, `HotKeys` for those that are missed
    thresholdValue         ``threshold``: a little over the frequency of the rows that would be replaced
    h_R                    rows of ``cache_share`` of the memory
    =====================  ===================================================================================

    Where it departs from Algorithm 1: tuples are looked up a piece of a batch at a time, what they find is copied page
    by page of the cache, and those that are missed are passed on many at once. f counts the matches of a row in all
    that waits when its page comes by, and is carried over from pass to pass in a counter that is halved now and then,
    like the cached rows' own counts: both follow the stream. Rows enter in bulk, when enough wait. Keys of which R has
    several rows, unmatched tuples, hashed keys, and left, semi and anti joins are handled, which the paper leaves out.

    Over plain Parquet it takes equality with any columns, before a join that takes Parquet (`MeshJoin` or
    `AdaptiveMeshJoin`). The rows of a key may lie anywhere there, so they are collected over a whole pass of R before
    they are cached (`ScatteredHotKeys`).
    """

    name = "front_stage"
    needs_equality = True
    wraps: ClassVar[type[SemiStreamJoin]] = MeshJoin
    options: ClassVar[Mapping[str, Check]] = {"wraps": anything, "cache_share": require_share, "options": anything}

    def __init__(
        self,
        relation: AnyRelation,
        stream: pa.Schema | JoinSpec,
        *,
        wraps: type[SemiStreamJoin] | None = None,
        cache_share: float = _SHARE,
        options: Mapping[str, Any] | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        require_share("cache_share", cache_share)
        self._wrapped_kind = wraps or type(self).wraps
        self.takes_unclustered = self._wrapped_kind.takes_unclustered
        self.cache_share = cache_share
        self._wrapped_options = options or {}
        self._hits = self._matched_hits = 0
        self._wrapped: SemiStreamJoin | None = None
        self._front: CacheAdmission | None = None
        self._held_back: list[pa.RecordBatch] | None = None
        super().__init__(relation, stream, **arguments)
        self._begin_period()

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget, *, cache_share: float = _SHARE) -> OperatorModel:
        """The model of the join behind the stage, and of a cache with as many rows as its share has room for."""
        return fronted_model(cls.name, cls.wraps, facts, memory, cache_share)

    def arrange(self) -> None:
        """Split the memory; the cache gets less than its share, or nothing, if the wrapped join needs it."""
        stats = None if self._wrapped is None else self._wrapped.stats
        carried = None if self._front is None else self._front.cache.everything()
        self._front = None
        free = self._memory.free
        wrapped = self._wrap(free - int(free * self.cache_share))
        if stats is not None:
            stats.budget_bytes = wrapped.budget.limit
            wrapped.stats = stats
        wrapped.share_deadlines(self._deadlines, self._deadline_column)
        self._wrapped = wrapped
        self._front = self._make_front(wrapped)
        if self._front is not None and carried is not None:
            self._front.hot.threshold = max(self._front.cache.admit(carried), self._front.hot.threshold)

    def _wrap(self, nbytes: int) -> SemiStreamJoin:
        free = self._memory.free
        part = self._memory.part(max(nbytes, 1))
        try:
            return self._open_wrapped(part)
        except BudgetError as error:
            if error.least_bytes is None:
                raise
            self._memory.require(error.least_bytes, purpose=f"the {self.name} join with {self.relation.path}")
            if error.least_bytes > free:
                raise
            part.resize(error.least_bytes)
            return self._open_wrapped(part)

    def _open_wrapped(self, memory: MemoryBudget) -> SemiStreamJoin:
        return self._wrapped_kind(self.relation, self.spec, memory=memory, disk=self._disk, **self._wrapped_options)

    def _make_front(self, wrapped: SemiStreamJoin) -> CacheAdmission | None:
        memory = FrontMemory.of(self._memory.free, self.spec)
        if memory is None:
            return None
        columns = cached_columns(self.spec)
        cache = TupleCache(columns, memory.cache_bytes)
        if cache.frames < LEAST_FRAMES:
            return None
        self._memory.charge(CACHE, memory.held_bytes)
        room = {"nbytes": memory.waiting_bytes, "bits": memory.counter_bits}
        hot: HotKeys | ScatteredHotKeys
        if self.spec.condition.computes_codes:
            assert isinstance(wrapped, MeshJoin)
            hot = ScatteredHotKeys(columns, cache.layout, wrapped, **room)
            wrapped.watch_runs(hot.meet)
        else:
            hot = HotKeys(columns, cache.layout, **room)
            wrapped.watch_pairs(self._observe)
        cached = dict(zip(columns, cache.columns, strict=True))
        emitter = Emitter(self.spec, memory, self._memory, cached=cached)
        return CacheAdmission(memory, cache, hot, emitter, ProbeRoom(memory.missed_rows, memory.piece_rows))

    @property
    def wrapped(self) -> SemiStreamJoin:
        """The join behind the stage."""
        assert self._wrapped is not None
        return self._wrapped

    @property
    def cached_rows(self) -> int:
        """Rows of R in the cache."""
        return self._front.cache.rows if self._front else 0

    def holds(self, batch: pa.RecordBatch) -> Bools:
        """Which tuples of a batch the cache would answer as it is now: those that cost no read.

        `semistream.shedding.CostAwareTopW` drops tuples by this. None enters here, and none is counted.
        """
        ranges = self.spec.condition.ranges(batch)
        if self._front is None:
            return np.zeros(batch.num_rows, np.bool_)
        held = self._front.cache.holds(ranges.low)
        return held if ranges.possible is None else held & ranges.possible

    @property
    def threshold(self) -> int:
        """How often a key must be missed, more than this, for its rows to be noted."""
        return self._front.hot.threshold if self._front else 0

    @property
    def disk_counts(self) -> DiskCounts:
        return self.wrapped.disk_counts

    def _attach_watcher(self) -> None:
        """What the wrapped join finds is watched by the stage itself."""

    def pages_to_drain(self) -> int:
        return self.wrapped.pages_to_drain()

    def pages_asked(self) -> int:
        return self.wrapped.pages_asked()

    def row_counts(self) -> tuple[int, ...]:
        return self._hits, self._matched_hits, *self.wrapped.row_counts(), *super().row_counts()

    def recount(self, counts: tuple[int, ...]) -> None:
        self._hits, self._matched_hits = counts[:2]
        self.wrapped.recount(counts[2:-4])
        super().recount(counts[-4:])

    def feed(self, batch: pa.RecordBatch) -> Results:
        begin = 0
        while begin < batch.num_rows:
            before = begin
            if self._front is None:
                yield from self._pass_on(batch.slice(begin))
                begin = batch.num_rows
            else:
                begin = yield from self._meet_cache(self._front, batch, begin)
            self.stats.rows_in += begin - before
            self._count()
            if self._front is not None:
                self._front.settle()
                self._grow_old(self._front, begin - before)

    def _meet_cache(
        self, front: CacheAdmission, batch: pa.RecordBatch, begin: int
    ) -> Generator[pa.RecordBatch, None, int]:
        """Join tuples from row ``begin`` on whose keys are cached, until many are missed, and pass these on.

        Gives the row up to which it came.
        """
        tuples, room, memory = BatchRows(batch), front.room, front.memory
        room.clear()
        end, missed_bytes = begin, 0
        while end < batch.num_rows:
            sizes = memory.next_sizes(tuples, end)
            wide, rows = memory.too_wide(widest(sizes)), room.missed_rows
            full = rows + sizes.size > memory.missed_rows or missed_bytes + memory.total(sizes) > memory.staging_bytes
            if end > begin and (wide or full):
                break
            if wide:
                yield from self._pass_on(batch.slice(end, sizes.size))
                return end + sizes.size
            yield from self._look_up(front, tuples, batch.slice(end, sizes.size), end)
            missed_bytes += memory.total(sizes[room.missed[rows:] - end])
            end += sizes.size
        yield from front.emitter.emit(tuples)
        if room.missed_rows == end - begin:
            yield from self._pass_on(batch.slice(begin, end - begin))
        elif room.missed_rows:
            yield from self._pass_on_copy(batch, room.missed, missed_bytes)
        return end

    def _look_up(self, front: CacheAdmission, tuples: BatchRows, piece: pa.RecordBatch, begin: int) -> Results:
        """Join tuples of a piece, which begins at a row of the batch, whose keys are cached."""
        cache, emitter, room = front.cache, front.emitter, front.room
        ranges, before = self.spec.condition.ranges(piece), room.missed_rows
        matched = None if self._hits_match else np.zeros(piece.num_rows, np.bool_)
        for position, page, row in cache.probe(ranges.low, ranges.possible, room, begin):
            kept = emitter.verified(tuples, position, cache.run, page, row)
            if matched is not None:
                matched[position[kept] - begin] = True
            if self.spec.pairs:
                yield from emitter.stage(tuples, position[kept], cache.run, page[kept], row[kept])
        missed = room.missed[before:] - begin
        hits = piece.num_rows - missed.size
        self._hits += hits
        self._matched_hits += hits if matched is None else int(np.count_nonzero(matched))
        if matched is not None and hits:
            answered = np.ones(piece.num_rows, np.bool_)
            answered[missed] = False
            rows = np.flatnonzero(answered)
            yield from emitter.finished_tuples(tuples, rows + begin, matched[rows])
            self._done(tuples, rows + begin, matched[rows])
        if isinstance(front.hot, ScatteredHotKeys):
            possible = missed if ranges.possible is None else missed[ranges.possible[missed]]
            front.hot.miss(np.sort(ranges.low[possible]))

    @property
    def _hits_match(self) -> bool:
        """Whether all that is found is a match and comes out as a pair, so that there is nothing more to say of it."""
        return self.spec.how == "inner" and self.spec.condition.check is None and self._deadlines is None

    def _pass_on_copy(self, batch: pa.RecordBatch, rows: Int32s, nbytes: int) -> Results:
        """Pass on some tuples of a batch, which have so many bytes."""
        self._memory.charge(_MISSED, nbytes)
        try:
            yield from self._pass_on(batch.take(pa.array(rows)))
        finally:
            self._memory.recharge(_MISSED, 0)

    def answer(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Join the tuples whose keys are cached, and give back the others, which do not enter.

        Gives results, with True, and then tuples that were missed, with False.
        """
        self._held_back = []
        try:
            for results in self.push(batch):
                yield results, True
            missed = self._held_back
        finally:
            self._held_back = None
        for tuples in missed:
            yield tuples.select(range(len(self.stream_schema))), False

    def _pass_on(self, batch: pa.RecordBatch) -> Results:
        """Push tuples to the wrapped join. One that is too wide for its share takes the room of the cache."""
        if self._held_back is not None:
            self._held_back.append(batch)
            self.stats.rows_in -= batch.num_rows
            return
        before = self.wrapped.stats.rows_in
        try:
            yield from self.wrapped.feed(batch)
        except BudgetError:
            if not self._give_way():
                raise
            taken = self.wrapped.stats.rows_in - before
            yield from self.wrapped.drain()
            self._arrange_anew()
            yield from self.wrapped.feed(batch.slice(taken))

    def _give_way(self) -> bool:
        """Leave all memory to the wrapped join when it is arranged anew; False if it has it all already."""
        if self._front is None:
            return False
        self.cache_share = 0.0
        return True

    def turn(self) -> Results:
        yield from self.wrapped.turn()
        self._count()

    def drain(self) -> Results:
        while self.wrapped.stats.rows_waiting:
            yield from self.wrapped.turn()
            if self._front is not None:
                self._front.settle()
        self._count()

    def _observe(self, run: PageRun, page: Int32s, row: Int32s) -> None:
        """Learn from pairs that the wrapped join has found. The cache may change: nothing is looked up meanwhile."""
        front = self._front
        if (
            front is not None
            and isinstance(front.hot, HotKeys)
            and front.hot.observe(self.relation.table, run, page, row)
        ):
            front.settle()

    def _grow_old(self, front: CacheAdmission, rows: int) -> None:
        """Let frequencies fade when they have counted for a while."""
        self._seen += rows
        cache, behind = front.cache, self.wrapped.stats
        if (
            self._seen < _AGED_AFTER * max(cache.rows, front.memory.piece_rows)
            or behind.rows_done - self._through < behind.rows_waiting
        ):
            return
        front.admit()
        front.age()
        self._begin_period()

    def _begin_period(self) -> None:
        self._seen, self._through = 0, self.wrapped.stats.rows_done

    def _count(self) -> None:
        """Counts of both stages together."""
        own, behind = self.stats, self.wrapped.stats
        own.rows_done = self._hits + behind.rows_done
        own.matched = self._matched_hits + behind.matched
        own.unmatched = own.rows_done - own.matched
        own.cache_hits = self._hits + behind.cache_hits
        own.steps, own.waits, own.probes, own.packets = behind.steps, behind.waits, behind.probes, behind.packets
        own.inserts, own.expiries, own.level_probes = behind.inserts, behind.expiries, behind.level_probes

    def rearrange(self, relation: Relation, limit: int) -> None:
        """A new version leaves the cache what it is, but for the keys that changed."""
        if self._front is not None and relation is not self.relation:
            self._front.hot.forget()
            changed = _changed_codes(self.relation, relation)
            self._front.cache.drop(np.sort(self._front.cache.codes) if changed is None else changed)
        if limit == self.budget.limit and relation.layout == self.relation.layout:
            try:
                self.wrapped.rearrange(relation, self.wrapped.budget.limit)
            except BudgetError:  # it needs more of the memory than it has
                super().rearrange(relation, limit)
            self._open(relation)
        else:
            super().rearrange(relation, limit)

    def close(self) -> None:
        """Close the wrapped join."""
        if self._wrapped is not None:
            self._wrapped.close()


def _changed_codes(before: Relation, after: Relation) -> Any:
    """Codes of keys that differ between two versions, ascending; None if that is not known."""
    if before.path != after.path or not after.clustered:
        return None
    older, newer = sorted((before, after), key=lambda relation: relation.version)
    return newer.changes_since(older.version)
