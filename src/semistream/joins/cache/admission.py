"""CacheAdmission: decides when rows of hot keys enter the cache of a front stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.budget import MemoryBudget
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.hot_keys import HotKeys
from semistream.joins.cache.hot_keys_parquet import ScatteredHotKeys
from semistream.joins.cache.index import ProbeRoom
from semistream.joins.cache.memory import CACHE, LEAST_FRAMES, FrontMemory, cached_columns
from semistream.joins.cache.tuple_cache import TupleCache
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.parts.emitter import Emitter, PairWatcher
from semistream.kernels.array_types import Int32s
from semistream.relation import Relation

_WORTH = 1  # additional hits per replaced row and period that justify rewriting pages of a full cache


@dataclass(frozen=True)
class CacheAdmission:
    """A tuple cache with the recorder of missed keys, the emitter of its results, and the memory split of all three.

    The recorder's counts and the frequencies of cached rows cover about the same stretch of the stream and are halved
    together. They are comparable, so new rows replace cached rows with a lower frequency.
    """

    memory: FrontMemory
    cache: TupleCache
    hot: HotKeys | ScatteredHotKeys
    emitter: Emitter
    room: ProbeRoom

    @classmethod
    def of(
        cls, spec: JoinSpec, budget: MemoryBudget, wrapped: SemiStreamJoin, observe: PairWatcher
    ) -> CacheAdmission | None:
        """Create a cache in all that is free of ``budget``; None if that is too little for one.

        Rows of R reach it through the join behind, which reports its pairs to ``observe``, or its scan over Parquet.
        """
        memory = FrontMemory.of(budget.free, spec)
        if memory is None:
            return None
        columns = cached_columns(spec)
        cache = TupleCache(columns, memory.cache_bytes)
        if cache.frames < LEAST_FRAMES:
            return None
        budget.charge(CACHE, memory.held_bytes)
        room = {"nbytes": memory.waiting_bytes, "bits": memory.counter_bits}
        hot: HotKeys | ScatteredHotKeys
        if spec.condition.computes_codes:
            assert isinstance(wrapped, MeshJoin)
            hot = ScatteredHotKeys(columns, cache.layout, wrapped, **room)
            wrapped.watch_runs(hot.meet)
        else:
            hot = HotKeys(columns, cache.layout, **room)
            wrapped.watch_pairs(observe)
        emitter = Emitter(spec, memory, budget, cached=dict(zip(columns, cache.columns, strict=True)))
        return cls(memory, cache, hot, emitter, ProbeRoom(memory.missed_rows, memory.piece_rows))

    def settle(self) -> None:
        """Admit waiting rows if the recorder is full, or if enough of them wait while the cache is still filling up."""
        waiting = self.hot.waiting_bytes
        fills = waiting and not self.cache.nearly_full
        if self.hot.full or (fills and waiting >= self.memory.worth_rebuilding(self.cache.used_bytes)):
            self.admit()

    def admit(self) -> None:
        """Move waiting rows into the cache, and set the threshold for the next ones.

        A full cache takes them only if they bring more than `_WORTH` additional hits per row over the rows they
        replace, enough to pay for rewriting pages. The new threshold asks the same of the next keys.
        """
        new, cache = self.hot.take(self.cache), self.cache
        if new is None:
            return
        if not cache.nearly_full:
            self.hot.threshold = max(cache.admit(new), 1)
            return
        replaced = _least(cache.frequency, new.frequency.size)
        if int(new.frequency.sum()) - int(replaced.sum()) > _WORTH * replaced.size:
            cache.admit(new)
            replaced = _least(cache.frequency, new.frequency.size)
        self.hot.threshold = int(replaced.max(initial=0)) + _WORTH

    def change_version(self, before: Relation, after: Relation) -> None:
        """Drop cached rows of keys that may differ between two versions of R; all of them if that is unknown."""
        self.hot.forget()
        changed = None
        if before.path == after.path and after.clustered:
            older, newer = sorted((before, after), key=lambda relation: relation.version)
            changed = newer.changes_since(older.version)
        self.cache.drop(np.sort(self.cache.codes) if changed is None else changed)

    def age(self) -> None:
        """Halve all counts, and the threshold with them."""
        self.hot.threshold = max(self.hot.threshold // 2, 1)
        self.hot.age()
        self.cache.age()


def _least(frequency: Int32s, rows: int) -> Int32s:
    """Return the ``rows`` lowest frequencies."""
    return np.partition(frequency, rows)[:rows] if rows < frequency.size else frequency
