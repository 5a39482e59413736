"""EngineJoin: what ``operator="auto"`` runs."""

from __future__ import annotations

import numpy as np

from semistream.joins.front_stage import Front, FrontStage
from semistream.joins.sweep import SweepJoin

_LEAST_SHARE, _MOST_SHARE = 1 / 64, 0.75
_GROW, _SHRINK = 1.5, 0.5
_WORTH_MORE, _WORTH_LESS = 1.5, 0.6  # of the trade, between which nothing is changed: a change costs a flush
_LEAST_ROWS = 64


class EngineJoin(FrontStage):
    """The papers' ideas together: FRONT's tuple cache before a planned, overlapped sweep of tuples in key order.

    Hot keys are answered from memory as they come (`FrontStage`). The others wait in the order of their codes, in all
    the memory that is left, for one endless sweep over the pages that they need (`SweepJoin`): MESHJOIN's shared scan
    where most pages are needed, SSIJ's read plan where few are. Payload is gathered last and once.

    The memory is split so that a pass over R serves as many tuples as it can. With M bytes, C of them the cache's, and
    a share h(C) of the stream that it answers, a pass serves tuples in proportion to (M - C) / (1 - h(C)). That is
    greatest where (M - C) h'(C) = 1 - h(C): h' is what the last bytes of the cache answer, which the frequencies of the
    rows asked for least tell. So from time to time the cache grows or shrinks (FRONT 3.2 tunes it by the same trade,
    from the model of a known distribution).
    """

    name = "engine"
    wraps = SweepJoin

    def _better_share(self, front: Front, hit_rate: float) -> float:
        cache = front.cache
        if cache.rows < _LEAST_ROWS:
            return self.cache_share if self._hits else max(self.cache_share * _SHRINK, _LEAST_SHARE)
        coldest = np.partition(cache.frequency, cache.rows // 4)[: cache.rows // 4]
        # A frequency is the sum of counts halved again and again: in the long run, twice that of the last period.
        answered = float(coldest.sum()) / 2 / max(self._seen, 1)
        cache_bytes = self.cache_share * self._memory.limit
        gain = (self._memory.limit - cache_bytes) * answered / (cache_bytes * max(cache.fill, 0.01) / 4)
        worth = gain / max(1 - hit_rate, 1e-3)
        if worth > _WORTH_MORE and cache.fill > 0.9:
            return min(self.cache_share * _GROW, _MOST_SHARE)
        if worth < _WORTH_LESS:
            return max(self.cache_share * _SHRINK, _LEAST_SHARE)
        return self.cache_share
