"""CacheAdmission: decides when rows of hot keys enter the cache of a front stage."""

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

    def age(self) -> None:
        """Halve all counts, and the threshold with them."""
        self.hot.threshold = max(self.hot.threshold // 2, 1)
        self.hot.age()
        self.cache.age()


def _least(frequency: Int32s, rows: int) -> Int32s:
    """Return the ``rows`` lowest frequencies."""
    return np.partition(frequency, rows)[:rows] if rows < frequency.size else frequency
