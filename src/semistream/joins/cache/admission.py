"""CacheAdmission: the cache of a front stage with all that feeds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.joins.cache.hot_keys import HotKeys
from semistream.joins.cache.hot_keys_parquet import ScatteredHotKeys
from semistream.joins.cache.index import ProbeRoom
from semistream.joins.cache.memory import FrontMemory
from semistream.joins.cache.tuple_cache import TupleCache
from semistream.joins.parts.emitter import Emitter
from semistream.kernels.array_types import Int32s

_WORTH = 1  # hits more in a period, for each row that is taken into a full cache, from which it is worth it


@dataclass(frozen=True)
class CacheAdmission:
    """A tuple cache, the recorder of the keys that it misses, what gives its results out, and the memory of all.

    Counts of the recorder and frequencies of cached rows are of about the same stretch of the stream, and are halved
    together. So rows are taken in place of others if they were asked for more often.
    """

    memory: FrontMemory
    cache: TupleCache
    hot: HotKeys | ScatteredHotKeys
    emitter: Emitter
    room: ProbeRoom

    def settle(self) -> None:
        """Take rows that wait into the cache: when they are many for it while it fills, else when no more can wait."""
        waiting = self.hot.waiting_bytes
        fills = waiting and not self.cache.nearly_full
        if self.hot.full or (fills and waiting >= self.memory.worth_rebuilding(self.cache.used_bytes)):
            self.admit()

    def admit(self) -> None:
        """Take rows that wait into the cache; if it is full, only if they are asked for so much more often than those
        they replace that it is worth to write pages anew. From then on so much is asked of others, too.
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

    def age(self) -> None:
        """Halve all counts, and with them what is asked of a key."""
        self.hot.threshold = max(self.hot.threshold // 2, 1)
        self.hot.age()
        self.cache.age()


def _least(frequency: Int32s, rows: int) -> Int32s:
    """The least of some frequencies."""
    return np.partition(frequency, rows)[:rows] if rows < frequency.size else frequency
