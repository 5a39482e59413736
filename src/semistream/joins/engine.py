"""EngineJoin: what ``operator="auto"`` runs."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.joins.base import JoinArguments, Results
from semistream.joins.front_stage import Front, FrontStage
from semistream.joins.sweep import SweepJoin
from semistream.relation import Relation

_LEAST_SHARE, _MOST_SHARE = 1 / 64, 1 / 4
_MULTIPLE = 3  # of the share of memory, in the share of the stream, from which the cache may grow
_SWEEP_S, _CACHE_S = 120e-9, 800e-9  # what a tuple takes of the processor in the sweep, and to be looked up in a cache
_RUN_S = 300e-6  # and a run of pages
_GAIN = 0.8  # of the time without a cache, that the time with one must come down to before there is one
_SAMPLE_ROWS = 1 << 14


class EngineJoin(FrontStage):
    """The papers' ideas together: FRONT's tuple cache before a planned, overlapped sweep of tuples in key order.

    Tuples wait in the order of their codes, in all the memory that there is, for one endless sweep over the pages that
    they need (`SweepJoin`): MESHJOIN's shared scan where most pages are needed, SSIJ's read plan where few are. Payload
    is gathered last and once. Where hot keys are worth it, they are answered from memory as they come (`FrontStage`).

    A cache is worth it if it saves more time of the disk than it takes of the processor. If a pass over R takes p
    seconds and n tuples wait, a tuple takes p / n; with a cache that has a share c of the memory and answers a share h
    of the stream, it takes (1 - h) / (1 - c) times that, and the look-up. Without a cache, h is estimated by how much
    of a sample of the stream is keys that come again in it; with one, it is measured. So there is none in front of a
    fast disk with much memory, and one in front of a slow disk under skew: it starts with a quarter of the memory, has
    half as much when it answers less than its share, and twice as much, up to a quarter, when it is full and answers a
    multiple of it (FRONT 3.2 makes the same trade from the model of a known distribution).
    """

    name = "engine"
    wraps = SweepJoin

    def __init__(
        self,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        cache_share: float | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        self._decides = cache_share is None
        self._sampled_next = 0  # rows in, from which the stream is sampled again
        super().__init__(relation, stream_schema, cache_share=cache_share or 0.0, **arguments)

    def _push(self, batch: pa.RecordBatch) -> Results:
        if self._decides and self._front is None and self.stats.rows_in >= self._sampled_next:
            self._sampled_next = self.stats.rows_in + max(self._sweep.capacity, _SAMPLE_ROWS)
            if self._time_with(_MOST_SHARE, self._hot_share(batch)) < _GAIN * self._time_with(0.0, 0.0):
                yield from self._give(_MOST_SHARE)
        yield from super()._push(batch)

    @property
    def _sweep(self) -> SweepJoin:
        assert isinstance(self.wrapped, SweepJoin)
        return self.wrapped

    def _hot_share(self, batch: pa.RecordBatch) -> float:
        """The share of a sample of the stream in which keys come again; with few tuples it says nothing."""
        sample = batch.slice(0, _SAMPLE_ROWS)
        _, counts = np.unique(self.spec.condition.ranges(sample).low, return_counts=True)
        again = int(counts[counts > 1].sum())
        return again / _SAMPLE_ROWS

    def _time_with(self, cache_share: float, hit_rate: float) -> float:
        """Seconds that a tuple takes with a cache that has a share of the memory and answers a share of the stream."""
        r, waiting = self.relation, self._sweep.capacity * (1 - cache_share) / (1 - self.cache_share)
        runs = r.nbytes / max(self._sweep.run_bytes, 1)
        disk_s = self._read_costs.request_s(r.nbytes, r.num_pages) + runs * _RUN_S
        missed_s = (1 - hit_rate) * max(_SWEEP_S, disk_s / max(waiting, 1))
        return missed_s + (_CACHE_S if cache_share else 0.0)

    def _better_share(self, front: Front, hit_rate: float) -> float:
        share = self.cache_share
        if hit_rate < share:
            share = max(share / 2, _LEAST_SHARE)
        elif hit_rate > _MULTIPLE * share and front.cache.nearly_full:
            share = min(2 * share, max(_MOST_SHARE, share))
        if self._decides and self._time_with(self.cache_share, hit_rate) > self._time_with(0.0, 0.0):
            return 0.0
        return share
