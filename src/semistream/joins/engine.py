"""EngineJoin: what ``operator="auto"`` runs."""

from __future__ import annotations

from semistream.joins.front_stage import Front, FrontStage
from semistream.joins.sweep import SweepJoin

_LEAST_SHARE, _MOST_SHARE = 1 / 64, 1 / 4
_MULTIPLE = 3  # of the share of memory, in the share of the stream, from which the cache may grow
_FULL = 0.9


class EngineJoin(FrontStage):
    """The papers' ideas together: FRONT's tuple cache before a planned, overlapped sweep of tuples in key order.

    Hot keys are answered from memory as they come (`FrontStage`). The others wait in the order of their codes, in all
    the memory that is left, for one endless sweep over the pages that they need (`SweepJoin`): MESHJOIN's shared scan
    where most pages are needed, SSIJ's read plan where few are. Payload is gathered last and once.

    The memory is split so that a pass over R serves as many tuples as it can. If the cache has a share c of the memory
    and answers a share h of the stream, a pass serves tuples in proportion to (1 - c) / (1 - h): the cache is worth its
    memory if h > c. So it starts with a quarter, has half as much when it answers less than its share, and twice as
    much, up to a quarter, when it is full and answers a multiple of it (FRONT 3.2 makes the same trade from the model
    of a known distribution).
    """

    name = "engine"
    wraps = SweepJoin

    def _better_share(self, front: Front, hit_rate: float) -> float:
        if hit_rate < self.cache_share:
            return max(self.cache_share / 2, _LEAST_SHARE)
        if hit_rate > _MULTIPLE * self.cache_share and front.cache.fill > _FULL:
            return min(2 * self.cache_share, max(_MOST_SHARE, self.cache_share))
        return self.cache_share
