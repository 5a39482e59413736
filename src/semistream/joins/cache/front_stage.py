"""FrontStage: a cache of R's hottest tuples in front of any operator."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import OperatorModel
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.admission import CacheAdmission
from semistream.joins.cache.batch_rows import BatchRows
from semistream.joins.cache.hot_keys import HotKeys
from semistream.joins.cache.hot_keys_parquet import ScatteredHotKeys
from semistream.joins.cache.memory import behind_bytes, fronted_model, least_bytes
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.parts.options import Check, anything
from semistream.joins.requirements import JoinArguments
from semistream.kernels.array_types import Bools, Int32s
from semistream.relation import AnyRelation, DiskCounts, PageRun, Relation
from semistream.relation.format.row_sizes import widest

_MISSED = "missed tuples"
_SHARE = 0.25  # of the memory for the cache, by default
_AGED_AFTER = 2  # stream tuples per cached row between two halvings of the frequencies


def require_share(option: str, value: float) -> None:
    """Raise `InvalidArgument` for a cache share outside 0 to 0.9; above, too little is left for the wrapped join."""
    if not 0 <= value <= 0.9:
        raise InvalidArgument(f"{option} is {value}; give a share of the memory from 0 to 0.9.")


class FrontStage(SemiStreamJoin):
    """Front stage (FRONT 3): a cache of R's hottest tuples that answers hot keys at once, before any other operator.

    The cache holds all rows of a key or none, so a tuple whose key is cached needs no read. All other tuples go to the
    wrapped join, and the frequency recorder counts the pairs it finds. When the count of a key exceeds ``threshold``,
    its rows are copied as their page is joined, and replace the cached rows used least. With `MeshJoin` behind it, this
    is CMESHJOIN. The result is exact, and one budget covers the cache and the wrapped join.

    =====================  ===================================================================================
    FRONT                  here
    =====================  ===================================================================================
    H_R                    `TupleCache`: rows in pages like R's, found by a hash index of their key codes
    H_S, Q, w, b           the wrapped join's
    frequency recorder     the frequencies of cached rows; `HotKeys` for missed keys
    thresholdValue         ``threshold``: a little above the frequency of the rows to replace
    h_R                    the rows that fit in ``cache_share`` of the memory
    =====================  ===================================================================================

    Differences from Algorithm 1: tuples are looked up in pieces of a batch, matches are copied one cache page at a
    time, missed tuples are passed on in bulk, and rows enter the cache in bulk. f counts the matches of a row among all
    tuples waiting when its page is joined. A counter carries it from pass to pass and is halved from time to time, as
    are the counts of cached rows, so both follow the stream. Beyond the paper, it handles keys with several rows,
    unmatched tuples, hashed keys, and left, semi and anti joins.

    Over plain Parquet it takes equality on any columns, in front of `MeshJoin` or `AdaptiveMeshJoin`. There the rows of
    a key may lie anywhere, so they are collected over a whole pass of R before they are cached (`ScatteredHotKeys`).

    Parameters
    ----------
    wraps : type, optional
        Class of the join behind the cache. Default: `MeshJoin`.
    cache_share : float
        Share for the cache, from 0 to 0.9, of the memory beyond what the wrapped join needs. Default: 0.25.
    options : mapping, optional
        Own arguments of the wrapped join.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import FrontStage, Relation, SweepJoin
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     orders = pa.record_batch({"id": [2] * 9})
    ...     with FrontStage(products, orders.schema, on="id", memory="2MB", wraps=SweepJoin) as join:
    ...         for _ in range(2):
    ...             rows = sum(batch.num_rows for batch in [*join.push(orders), *join.flush()])
    ...         rows, join.cached_rows, join.stats.cache_hits
    (9, 1, 9)

    References
    ----------
    FRONT 3.1 (Algorithm 1), FRONT 3.2 (the size of the cache).
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
        """Return the model of the wrapped join behind a cache filled to ``cache_share`` of the memory."""
        return fronted_model(cls.name, cls.wraps, facts, memory, cache_share)

    def arrange(self) -> None:
        """Split the memory. The cache gets less than its share, or nothing, if the wrapped join needs the memory."""
        stats = None if self._wrapped is None else self._wrapped.stats
        carried = None if self._front is None else self._front.cache.everything()
        self._front = None
        wrapped = self._wrap()
        if stats is not None:
            stats.budget_bytes = wrapped.budget.limit
            wrapped.stats = stats
        wrapped.share_deadlines(self._deadlines, self._deadline_column)
        self._wrapped = wrapped
        self._front = CacheAdmission.of(self.spec, self._memory, wrapped, self._observe)
        if self._front is not None and carried is not None:
            self._front.hot.threshold = max(self._front.cache.admit(carried), self._front.hot.threshold)

    def _wrap(self) -> SemiStreamJoin:
        """Open the wrapped join with the memory that it needs, and all of the rest but the cache's share."""
        purpose = f"the {self.name} join with {self.relation.path}"
        least = least_bytes(lambda: self._open_wrapped(MemoryBudget(1)).close()) if self.cache_share else 0
        part = self._memory.part(behind_bytes(self._memory, least, self.cache_share, purpose))
        try:
            return self._open_wrapped(part)
        except BudgetError as error:
            self._memory.require((error.least_bytes or 0) + self._memory.used, purpose=purpose)
            raise

    def _open_wrapped(self, memory: MemoryBudget) -> SemiStreamJoin:
        return self._wrapped_kind(self.relation, self.spec, memory=memory, disk=self._disk, **self._wrapped_options)

    @property
    def wrapped(self) -> SemiStreamJoin:
        """The join behind the cache."""
        assert self._wrapped is not None
        return self._wrapped

    @property
    def cached_rows(self) -> int:
        """Rows of R in the cache."""
        return self._front.cache.rows if self._front else 0

    def holds(self, batch: pa.RecordBatch) -> Bools:
        """Return a flag per tuple: True if the cache would answer it now, without a read.

        The tuples do not enter the join and are not counted. `experiments/cost_aware_top_w.py` sheds by these flags.
        """
        ranges = self.spec.condition.ranges(batch)
        if self._front is None:
            return np.zeros(batch.num_rows, np.bool_)
        held = self._front.cache.holds(ranges.low)
        return held if ranges.possible is None else held & ranges.possible

    @property
    def threshold(self) -> int:
        """Count of misses above which the rows of a key are collected for the cache."""
        return self._front.hot.threshold if self._front else 0

    @property
    def disk_counts(self) -> DiskCounts:
        return self.wrapped.disk_counts

    def _attach_watcher(self) -> None:
        """Attach nothing: the stage itself watches the pairs of the wrapped join."""

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
        """Answer cached keys from row ``begin`` on until enough tuples are missed, then pass the missed ones on.

        Returns the first row not looked up.
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
        """Join the tuples with cached keys in ``piece``, which starts at row ``begin`` of the batch."""
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
        """True if every hit is a match, a result pair, and has no deadline, so that no flags need to be kept."""
        return self.spec.how == "inner" and self.spec.condition.check is None and self._deadlines is None

    def _pass_on_copy(self, batch: pa.RecordBatch, rows: Int32s, nbytes: int) -> Results:
        """Copy some rows of a batch, ``nbytes`` in total, and pass them on."""
        self._memory.charge(_MISSED, nbytes)
        try:
            yield from self._pass_on(batch.take(pa.array(rows)))
        finally:
            self._memory.recharge(_MISSED, 0)

    def answer(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Join the tuples with cached keys, and return the others instead of taking them in.

        Yields (results, True), then (missed tuples, False).
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
        """Feed tuples to the wrapped join. If one is too wide for its memory, give it the memory of the cache."""
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
        """Leave all memory to the wrapped join at the next arrangement; return False if it has all of it already."""
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
        """Count the pairs found by the wrapped join. May change the cache, since no look-up is in progress."""
        front = self._front
        if (
            front is not None
            and isinstance(front.hot, HotKeys)
            and front.hot.observe(self.relation.table, run, page, row)
        ):
            front.settle()

    def _grow_old(self, front: CacheAdmission, rows: int) -> None:
        """Halve the frequencies at the end of a period.

        A period lasts for `_AGED_AFTER` stream tuples per cached row, and until as many missed tuples are finished as
        are waiting.
        """
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
        """Combine the counts of the cache and the wrapped join."""
        own, behind = self.stats, self.wrapped.stats
        own.rows_done = self._hits + behind.rows_done
        own.matched = self._matched_hits + behind.matched
        own.unmatched = own.rows_done - own.matched
        own.cache_hits = self._hits + behind.cache_hits
        own.steps, own.waits, own.probes, own.packets = behind.steps, behind.waits, behind.probes, behind.packets
        own.inserts, own.expiries, own.level_probes = behind.inserts, behind.expiries, behind.level_probes

    def rearrange(self, relation: Relation, limit: int) -> None:
        """Switch version or budget. Cached rows of unchanged keys stay; rows of changed keys are dropped."""
        if self._front is not None and relation is not self.relation:
            self._front.change_version(self.relation, relation)
        if limit == self.budget.limit and relation.layout == self.relation.layout:
            try:
                self.wrapped.rearrange(relation, self.wrapped.budget.limit)
            except BudgetError:  # the new version needs more memory than the wrapped join has: split it again
                super().rearrange(relation, limit)
            self._open(relation)
        else:
            super().rearrange(relation, limit)

    def close(self) -> None:
        """Close the wrapped join."""
        if self._wrapped is not None:
            self._wrapped.close()
