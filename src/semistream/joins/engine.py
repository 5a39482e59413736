"""EngineJoin: what ``operator="auto"`` runs."""

from __future__ import annotations

import sys
from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.joins.base import JoinArguments, Results
from semistream.joins.front import Front
from semistream.joins.front_stage import FrontStage
from semistream.joins.sweep import SweepJoin
from semistream.kernels.types import Int32s
from semistream.relation import Relation

_FIRST_SHARE = 1 / 8
_LEAST_SHARE, _MOST_SHARE = 1 / 64, 1 / 2
_SWEEP_S, _CACHE_S = 120e-9, 250e-9  # what a tuple takes of the processor in the sweep, and to be looked up in a cache
_RUN_S = 300e-6  # what a run of pages takes of it
_LONGEST_RUN = 4 << 20  # from where on runs are no longer with more memory
_GAIN = 0.8  # of the time without a cache, that the time with one must come down to before there is one
_CHANGE = 0.9  # and of the time with the share at hand, that with another: to change it takes a pass over R
_SAMPLE_ROWS = 1 << 14
_CACHED = 0.5  # of the memory of a cache, that is rows
_MOST_PATIENCE = 64  # passes before a cache is tried again that was of no use


class EngineJoin(FrontStage):
    """The papers' ideas together: FRONT's tuple cache before a planned, overlapped sweep of tuples in key order.

    Tuples wait in the order of their codes, in all the memory that there is, for one endless sweep over the pages that
    they need (`SweepJoin`): MESHJOIN's shared scan where most pages are needed, SSIJ's read plan where few are. Payload
    is gathered last and once. Where hot keys are worth it, they are answered from memory as they come (`FrontStage`).

    A cache is worth it if it saves more time of the sweep than it takes itself. If a pass over R takes p seconds and n
    tuples wait, a tuple takes p / n; with a cache that has a share c of the memory and answers a share h of the stream,
    it takes (1 - h) / (1 - c) times that, and the look-up; and p is longer where runs are shorter. Without a cache, h
    is estimated by how much of a sample of the stream is keys that come again in it; with one, it is measured. So there
    is none in front of a fast disk with much memory, and one in front of a slow disk or a small memory under skew. It
    starts with an eighth of the memory. What half of it or twice as much would answer is seen from its rows'
    frequencies, and it gets that if it is faster (FRONT 3.2 makes the same trade from the model of a known
    distribution).
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
        self._patience = 1  # passes until then
        super().__init__(relation, stream_schema, cache_share=cache_share or 0.0, **arguments)

    def _push(self, batch: pa.RecordBatch) -> Results:
        if self._decides and self._front is None and self.stats.rows_in >= self._sampled_next:
            self._sampled_next = self.stats.rows_in + self._patience * max(self._sweep.capacity, _SAMPLE_ROWS)
            if self._time_with(_FIRST_SHARE, self._hot_share(batch)) < _GAIN * self._time_with(0.0, 0.0):
                yield from self._give(_FIRST_SHARE)
                if self._front is None:  # the memory is too small for any
                    self._sampled_next = sys.maxsize
                    yield from self._give(0.0)
        yield from super()._push(batch)

    def _rearrange(self, relation: Relation, limit: int) -> None:
        self._sampled_next = min(self._sampled_next, self.stats.rows_in)
        super()._rearrange(relation, limit)

    @property
    def _sweep(self) -> SweepJoin:
        assert isinstance(self.wrapped, SweepJoin)
        return self.wrapped

    def _hot_share(self, batch: pa.RecordBatch) -> float:
        """The share of a sample of the stream that is keys which come again in it, as many as a cache has room for.

        With few tuples it says nothing.
        """
        sample = batch.slice(0, _SAMPLE_ROWS)
        _, counts = np.unique(self.spec.condition.ranges(sample).low, return_counts=True)
        row_bytes = self.relation.nbytes / max(self.relation.num_rows, 1)
        cached = int(_CACHED * _FIRST_SHARE * self._memory.limit / max(row_bytes, 1))
        again = -np.sort(-counts[counts > 1])[:cached]
        return int(again.sum()) / _SAMPLE_ROWS

    def _time_with(self, cache_share: float, hit_rate: float) -> float:
        """Seconds that a tuple takes with a cache that has a share of the memory and answers a share of the stream."""
        r, left = self.relation, (1 - cache_share) / (1 - self.cache_share)
        waiting = max(self._sweep.pass_rows * left, 1)
        run_bytes = max(min(self._sweep.run_bytes * left, _LONGEST_RUN), 1)
        disk_s = self._read_costs.request_s(r.nbytes, r.num_pages) / waiting
        processor_s = _SWEEP_S + r.nbytes / run_bytes * _RUN_S / waiting
        return (1 - hit_rate) * max(disk_s, processor_s) + (_CACHE_S if cache_share else 0.0)

    def _better_share(self, front: Front, hit_rate: float) -> float:
        share, more = self.cache_share, hit_rate * _colder_half(front.cache.frequency)
        times = {share: _CHANGE * self._time_with(share, hit_rate)}
        if share / 2 >= _LEAST_SHARE:
            times[share / 2] = self._time_with(share / 2, hit_rate - more)
        if 2 * share <= _MOST_SHARE and front.cache.nearly_full:
            times[2 * share] = self._time_with(2 * share, hit_rate + more)
        if self._decides:
            times[0.0] = self._time_with(0.0, 0.0)
        better = min(times, key=lambda other: times[other])
        if better == 0:
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        return better


def _colder_half(frequency: Int32s) -> float:
    """The part of all hits that half of the rows of a cache have, those that are asked for least."""
    half = np.partition(frequency, frequency.size // 2)[: frequency.size // 2] if frequency.size else frequency
    return int(half.sum()) / max(int(frequency.sum()), 1)
