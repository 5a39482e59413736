"""EngineJoin: the papers' ideas together, tuned to the stream while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.base import JoinArguments, Results
from semistream.joins.front_stage import FrontStage
from semistream.joins.spec import JoinSpec
from semistream.joins.sweep import SweepJoin
from semistream.kernels.types import Int64s
from semistream.relation import AnyRelation, Relation
from semistream.tuning.key_sketch import LEAST_BYTES, KeySketch
from semistream.tuning.machine import DEFAULT_MACHINE, Machine
from semistream.tuning.prediction import predict
from semistream.tuning.sampled_frequencies import frequencies_of_sample
from semistream.tuning.work import OperatorModel
from semistream.tuning.workload import Workload

CACHE_SHARES = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4)
"""Shares of the memory that the cache is tried with."""

_SKETCH = "key sketch"
_WORTH_IT = 0.9  # of the time that a tuple takes now, that another share must come down to: to change it takes a pass
_SKETCH_SHARE = 32  # one part in so many of the memory is for the sketch, up to
_MOST_SKETCH = 512 << 10
_STRIDE, _FURTHER = 64, 4  # one tuple in so many has its code made for the sketch, of which it takes one in so many
_OFFSET = 29  # by which the first of them moves on from batch to batch
_FIRST_SAMPLE = 32  # bytes of the sketch's memory for each tuple of the first batch that is looked at
_LEAST_FIRST = 512  # tuples, of which the first batch must have so many to be looked at
_FEW_ROWS = 1 << 14  # tuples that the cache misses between two looks, at least
_MUCH = 1.5  # times less time, for which the stream must have changed, and is looked at soon again
_MOST_PATIENCE = 16  # passes between two looks, if it does not


class EngineJoin(FrontStage):
    """The papers' ideas together: FRONT's tuple cache before a planned, overlapped sweep of tuples in key order.

    Tuples wait in the order of their codes, in all the memory that there is, for one endless sweep over the pages that
    they need (`SweepJoin`): MESHJOIN's shared scan where most pages are needed, SSIJ's read plan where few are. Payload
    is gathered last and once. Where hot keys are worth it, they are answered from memory as they come (`FrontStage`).

    How much of the memory the cache has is for the cost model to say, with the frequencies of the stream's keys, which
    are watched by a sketch, and the costs of the ``machine``: FRONT 3.2 finds the optimum for a distribution that is
    known, here it is found again as the distribution changes. There is no cache in front of a fast disk with much
    memory, and one in front of a slow disk or with a small memory under skew. The first look is at the first batch, the
    next ones after one pass over R, two, four, and so on while little changes: passes count in tuples that the cache
    misses, so that a cache which answers less and less is looked at soon. If ``cache_share`` is given, it stays.
    """

    name = "engine"
    wraps = SweepJoin

    def __init__(
        self,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        cache_share: float | None = None,
        machine: Machine | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        self._decides = cache_share is None
        self._given_machine = machine
        self._sketch: KeySketch | None = None
        self._next_look = 0  # tuples that the cache has missed, from which on the share is chosen again
        self._patience = 1  # passes until then
        self._codes_made = 0
        super().__init__(relation, stream_schema, cache_share=cache_share or 0.0, **arguments)

    @classmethod
    def model(
        cls,
        relation: AnyRelation,
        spec: JoinSpec,
        memory: MemoryBudget,
        sample: pa.RecordBatch | None = None,
        *,
        cache_share: float = 0.0,
    ) -> OperatorModel:
        """The model of the sweep, and of a cache of that share, beside the sketch."""
        memory.charge(_SKETCH, _sketch_bytes(memory.limit))
        return super().model(relation, spec, memory, sample, cache_share=cache_share)

    def _arrange(self) -> None:
        self._next_look = 0
        if self._decides and (nbytes := _sketch_bytes(self._memory.limit)):
            self._memory.charge(_SKETCH, nbytes)
            try:
                super()._arrange()
            except BudgetError:  # then there is nothing left for a cache either
                self._memory.clear()
            else:
                if self._sketch is None or self._sketch.memory_bytes > nbytes:
                    self._sketch = KeySketch(max(self.relation.num_rows, 1), nbytes=nbytes, stride=_FURTHER)
                return
        self._sketch = None
        super()._arrange()

    def _push(self, batch: pa.RecordBatch) -> Results:
        if self._sketch is not None and batch.num_rows:
            self._sketch.observe(self._some_codes(batch, _STRIDE))
            if self._sweep.stats.rows_in >= self._next_look:
                yield from self._look(batch, self._sketch)
        yield from super()._push(batch)

    def _some_codes(self, batch: pa.RecordBatch, stride: int) -> Int64s:
        """The codes of one tuple in so many, from anywhere in the batch: it may be in the order of its keys."""
        self._codes_made += 1
        rows = np.arange(self._codes_made * _OFFSET % min(stride, batch.num_rows), batch.num_rows, stride)
        keys = batch.select(list(dict.fromkeys(self.spec.condition.stream_keys)))
        ranges = self.spec.condition.ranges(keys.take(pa.array(rows)))
        return ranges.low if ranges.possible is None else ranges.low[ranges.possible]

    def _look(self, batch: pa.RecordBatch, sketch: KeySketch) -> Results:
        """Choose the share of the cache for the stream as it is now."""
        share, gain = self._best_share(batch, sketch)
        self._patience = 1 if gain > _MUCH else min(2 * self._patience, _MOST_PATIENCE)
        if share != self.cache_share:
            yield from self._give(share)
        self._next_look = self._sweep.stats.rows_in + self._patience * max(self._sweep.pass_rows, _FEW_ROWS)

    def _give(self, share: float) -> Results:
        """Let the cache have another share of the memory."""
        yield from self.wrapped._flush()
        self._count()
        self.cache_share = share
        self._arrange_anew()
        self._begin_period()

    def _best_share(self, sample: pa.RecordBatch, sketch: KeySketch) -> tuple[float, float]:
        """The share with which a tuple takes the least time, if that is worth a change, and how many times less."""
        relation, frequencies = self.relation, sketch.frequencies()
        if frequencies is None and sample.num_rows >= _LEAST_FIRST:
            most = sketch.memory_bytes // _FIRST_SAMPLE
            codes = self._some_codes(sample, max(sample.num_rows // most, 1))
            frequencies = frequencies_of_sample(codes, sketch.num_keys)
        if frequencies is None or not relation.num_pages:
            return self.cache_share, 1.0
        workload = Workload(
            frequencies,
            relation_rows=max(relation.num_rows, 1),
            num_pages=relation.num_pages,
            page_bytes=relation.nbytes / relation.num_pages,
            results_per_tuple=self._results_per_tuple,
            values_per_result=len(self.spec.payload),
        )
        seconds = {share: self._seconds(share, workload, sample) for share in {*CACHE_SHARES, self.cache_share}}
        now_s = seconds[self.cache_share]
        seconds[self.cache_share] *= _WORTH_IT
        best = min(seconds, key=lambda share: seconds[share])
        return best, now_s / seconds[best] if seconds[best] else 1.0

    def _seconds(self, share: float, workload: Workload, sample: pa.RecordBatch) -> float:
        """What a tuple takes with a cache of such a share of the memory."""
        limit = self._memory.limit
        try:
            model = self.model(self.relation, self.spec, MemoryBudget(limit), sample, cache_share=share)
        except BudgetError:
            return float("inf")
        return 1 / predict(self.name, model, workload, self._machine, memory_bytes=limit).rate

    @property
    def _machine(self) -> Machine:
        """The machine as far as it is known; of its disk, what plans are made with."""
        known = self._given_machine
        return replace(DEFAULT_MACHINE, disk=self._read_costs) if known is None else known

    @property
    def _results_per_tuple(self) -> float:
        done = self.stats.rows_done
        return self.stats.outputs / done if done and self.spec.pairs else 1.0

    @property
    def _sweep(self) -> SweepJoin:
        assert isinstance(self.wrapped, SweepJoin)
        return self.wrapped


def _sketch_bytes(memory_bytes: int) -> int:
    """What of a memory is for the sketch; 0 if it is too small for one."""
    nbytes = min(memory_bytes // _SKETCH_SHARE, _MOST_SKETCH)
    return nbytes if nbytes >= LEAST_BYTES else 0
