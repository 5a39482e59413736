"""EngineJoin: a sweep behind a cache whose size is tuned to the stream while the join runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.machine import DEFAULT_MACHINE, Machine
from semistream.costs.prediction import predict
from semistream.costs.profiles import machine_for
from semistream.costs.work import OperatorModel
from semistream.costs.workload import Workload
from semistream.errors import BudgetError
from semistream.joins.cache.cost_model import FrontedModel
from semistream.joins.cache.front_stage import FrontStage, require_share
from semistream.joins.condition.spec import JoinSpec, join_workload
from semistream.joins.engine.stream_watch import BRIEF_BYTES, StreamWatch
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.parts.options import Check, anything
from semistream.joins.requirements import JoinArguments
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import AnyRelation, Relation


def known_machine(relation: AnyRelation, arguments: Mapping[str, Any]) -> Machine | None:
    """Return this machine, calibrated or by default, if a join opens R's disk itself; None if it is given a disk."""
    return machine_for(relation.path) if isinstance(arguments.get("disk", "auto"), str) else None


CACHE_SHARES = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4)
"""Candidate shares of the memory for the cache."""

_WATCH = "key sketch"
_NOTICED = 0.05  # share of a tuple's time: smaller savings are ignored
_CHANGE_PASSES = 1.5  # cost of changing the share and filling the cache again, in passes over R
_MISSES_PER_KEY = 4  # until a key is cached: it must be counted, and come again with the page that has its rows
_MUCH = 0.35  # share of a tuple's time: a larger saving means that the stream has changed, so look again soon
_SEEN_IN_PASS, _MOST_UNSEEN = 4, 1 << 19  # fewest batches watched in a pass, and most tuples between two of them, while
# looks are four passes apart; with more passes between looks, fewer batches of each pass are watched
_FEW_ROWS = 1 << 14  # fewest tuples missed by the cache in what counts as a pass between two looks
_LEAST_PATIENCE, _MOST_PATIENCE = 4, 16  # passes between two looks, within which a change must pay off
_MODEL_ROWS = 1 << 13  # rows of a batch from which models estimate the size of a tuple
_FREE_PATIENCE = 4  # factor by which looks come sooner if no tuple waits


def _require_share_if_given(option: str, value: float | None) -> None:
    if value is not None:
        require_share(option, value)


class EngineJoin(FrontStage):
    """The default operator: FRONT's tuple cache in front of a planned, overlapped sweep (`SweepJoin`).

    Tuples wait in the order of their codes for one endless sweep over the pages they need. It is MESHJOIN's shared scan
    where most pages are needed, and SSIJ's read plan where few are. Payload is gathered last and once. Where hot keys
    make a cache worthwhile, they are answered from memory as they arrive (`FrontStage`). The result is exact, and one
    budget covers everything.

    The cost model sets the cache's share of the memory, from the observed frequencies of the stream's keys
    (`StreamWatch`) and the costs of the machine. FRONT 3.2 finds the optimum for a known distribution; here it is found
    again as the distribution changes. With a fast disk and much memory there is no cache; with a slow disk or little
    memory, and skewed keys, there is one. The first look is at the first batch. The next looks come after four, eight
    and sixteen passes over R while little changes, and after one pass if much changes. They come sooner if no tuple
    waits, as soon as none waits if a change was not worth a pass, and at once if the stream changes suddenly. A pass is
    counted in tuples that the cache misses, so a cache with a falling hit rate is looked at soon.

    Parameters
    ----------
    cache_share : float, optional
        Fixed share of the memory for the cache, from 0 to 0.9. Default: tuned while the join runs.
    machine : Machine, optional
        Costs of the machine. Default: its calibrated profile, or typical costs if there is none.
    expected_share : float, optional
        Share to start with, if a tuner has already chosen one.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import EngineJoin, Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     orders = pa.record_batch({"id": [2, 9, 1]})
    ...     with EngineJoin(products, orders.schema, on="id", memory="2MB", ordered=True) as join:
    ...         [row for batch in [*join.push(orders), *join.flush()] for row in batch.to_pylist()]
    [{'id': 2, 'name': 'cola'}, {'id': 1, 'name': 'tea'}]

    References
    ----------
    FRONT 3 and 3.2 (cache), MESH 3.1 (shared scan), SSIJ IV-D (read plan); docs/tuning.md.
    """

    name = "engine"
    wraps = SweepJoin
    options: ClassVar[Mapping[str, Check]] = {"cache_share": _require_share_if_given, "machine": anything}

    def __init__(
        self,
        relation: Relation,
        stream: pa.Schema | JoinSpec,
        *,
        cache_share: float | None = None,
        machine: Machine | None = None,
        expected_share: float | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        self._decides = cache_share is None
        self._known_machine = known_machine(relation, arguments) if machine is None else machine
        self._watch: StreamWatch | None = None
        self._models: dict[float, OperatorModel | None] = {}  # by share; None if the memory is too small for it
        self._model_facts: JoinFacts | None = None
        self._next_look = 0  # count of tuples missed by the cache at which the share is chosen again,
        self._next_free_look = 0  # and the count while no tuple waits, when a change costs nothing
        self._would_change = False  # True if another share would save time, but less than the change costs
        self._next_seen = 0  # count of tuples at which a batch is watched again
        self._patience = 2  # passes until the next look; a look doubles it first, or sets it to 1 if much changes
        share = expected_share if cache_share is None else cache_share
        super().__init__(relation, stream, cache_share=share or 0.0, **arguments)
        if expected_share is not None:
            self._patience = _LEAST_PATIENCE
            self._look_later()

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget, *, cache_share: float = 0.0) -> OperatorModel:
        """Return the model of the sweep behind a cache of ``cache_share``, beside the sketch of the stream."""
        memory.charge(_WATCH, StreamWatch.affordable_bytes(memory.limit))
        return super().model(facts, memory, cache_share=cache_share)

    @classmethod
    def require_memory(cls, facts: JoinFacts, nbytes: int) -> None:
        """Raise `BudgetError` if the sweep alone does not fit: the cache and the sketch are optional."""
        try:
            super().require_memory(facts, nbytes)
        except BudgetError:
            cls.wraps.require_memory(facts, nbytes)

    def arrange(self) -> None:
        self._next_look = self._next_free_look = 0
        nbytes = StreamWatch.affordable_bytes(self._memory.limit) if self._decides else 0
        if nbytes:
            self._memory.charge(_WATCH, nbytes)
            try:
                super().arrange()
            except BudgetError:
                self._memory.clear()
                nbytes = 0
                super().arrange()
        else:
            super().arrange()
        if not self._decides:
            self._watch = None
        elif self._watch is None or self._watch.nbytes != nbytes:
            self._watch = StreamWatch(self.spec.condition, self.relation.num_rows, nbytes)

    def _give_way(self) -> bool:
        """Give up the cache and the sketch, because a row does not fit beside them; return False if both are gone."""
        watched, self._decides = self._watch is not None and self._watch.nbytes > 0, False
        return super()._give_way() or watched

    def feed(self, batch: pa.RecordBatch) -> Results:
        if self._watch is not None and batch.num_rows and (self.stats.rows_in >= self._next_seen or self._is_due):
            unseen = min(self._sweep.pass_rows // _SEEN_IN_PASS, _MOST_UNSEEN)
            self._next_seen = self.stats.rows_in + unseen * max(self._patience // _LEAST_PATIENCE, 1)
            yield from self._see(batch, self._watch)
        yield from super().feed(batch)

    def _see(self, batch: pa.RecordBatch, watch: StreamWatch) -> Results:
        """Watch a batch, and choose the share of the cache again if a look is due or the stream has changed."""
        brief = 0 if watch.nbytes else BRIEF_BYTES
        room = self._sweep.budget  # has free bytes while few results are being emitted
        if brief > room.free:
            return
        with room.charged(_WATCH, brief):
            changed = watch.see(batch)
            share, saved = self._best_share(batch, watch) if changed or self._is_due else (None, 0.0)
        if share is not None:
            yield from self._settle(share, saved)

    @property
    def _is_due(self) -> bool:
        """True if it is time to choose the share again."""
        behind = self._sweep.stats
        return behind.rows_in >= (self._next_look if behind.rows_waiting else self._next_free_look)

    def _settle(self, share: float, saved: float) -> Results:
        """Give the cache ``share`` of the memory if it has another, and schedule the next look."""
        self._patience = 1 if saved > _MUCH else min(2 * self._patience, _MOST_PATIENCE)
        if share != self.cache_share:
            yield from self._give(share)
        self._look_later()

    def _look_later(self) -> None:
        """Schedule the next look some passes over R later."""
        pass_rows, seen = max(self._sweep.pass_rows, _FEW_ROWS), self._sweep.stats.rows_in
        self._next_look = seen + self._patience * pass_rows
        free_passes = 0 if self._would_change else max(self._patience // _FREE_PATIENCE, 1)
        self._next_free_look = seen + free_passes * pass_rows

    def _give(self, share: float) -> Results:
        """Drain the sweep, and give the cache another share of the memory."""
        yield from self.wrapped.drain()
        self._count()
        self.cache_share = share
        self._arrange_anew()
        self._begin_period()

    def _best_share(self, sample: pa.RecordBatch, watch: StreamWatch) -> tuple[float, float]:
        """Return the share with the least time per tuple if changing to it pays off, and the part of the time saved.

        If it does not pay off, return the current share and 0. Filling a cache costs misses, which must pay off within
        as many tuples as have been seen, or until the next look if that is later. A change while tuples wait also costs
        a pass over R, so the time saved until the next look must exceed that.
        """
        relation, frequencies = self.relation, watch.frequencies(sample)
        if frequencies is None or not relation.num_pages:
            return self.cache_share, 0.0
        workload = join_workload(relation, self.spec, frequencies, results_per_tuple=self._results_per_tuple)
        if self._model_facts is None:
            self._model_facts = JoinFacts(relation, self.spec, sample.slice(0, _MODEL_ROWS))
        passes = max(self._patience, _LEAST_PATIENCE)
        horizon = max(self.stats.rows_in, passes * max(self._sweep.pass_rows, _FEW_ROWS))
        seconds = {
            share: self._seconds(share, workload, self._model_facts) for share in {*CACHE_SHARES, self.cache_share}
        }
        for share in seconds:
            if share > self.cache_share:
                seconds[share] += self._filling_seconds(share, workload) / horizon
        best = min(seconds, key=lambda share: seconds[share])
        saved = 1 - seconds[best] / seconds[self.cache_share]
        worth_it = saved * passes > _CHANGE_PASSES if self._sweep.stats.rows_waiting else saved > _NOTICED
        self._would_change = saved > _NOTICED and not worth_it
        return (best, saved) if worth_it else (self.cache_share, 0.0)

    def _seconds(self, share: float, workload: Workload, facts: JoinFacts) -> float:
        """Return the predicted seconds per tuple with a cache of ``share`` of the memory; inf if that does not fit."""
        limit = self._memory.limit
        if share not in self._models:
            try:
                model = self.model(facts, MemoryBudget(limit), cache_share=share)
            except BudgetError:
                model = None
            self._models[share] = model
        made = self._models[share]
        if made is None:
            return math.inf
        return 1 / predict(self.name, made, workload, self._machine, memory_bytes=limit).rate

    def _filling_seconds(self, share: float, workload: Workload) -> float:
        """Return the predicted seconds until a cache of ``share`` of the memory is full.

        Each of its keys is missed a few times before it is cached, and a miss takes as long as without a cache, in the
        memory beside it.
        """
        made = self._models[share]
        if not isinstance(made, FrontedModel):
            return 0.0
        missing = max(made.cached_rows - self.cached_rows, 0.0) / (workload.results_per_tuple or 1.0)
        empty, limit = replace(made, cached_rows=0.0), self._memory.limit
        return _MISSES_PER_KEY * missing / predict(self.name, empty, workload, self._machine, memory_bytes=limit).rate

    def rearrange(self, relation: Relation, limit: int) -> None:
        self._models.clear()
        self._model_facts = None
        super().rearrange(relation, limit)

    @property
    def _machine(self) -> Machine:
        """The known machine; otherwise the default one with the disk costs that plans assume."""
        known = self._known_machine
        return replace(DEFAULT_MACHINE, disk=self._read_costs) if known is None else known

    @property
    def _results_per_tuple(self) -> float:
        done = self.stats.rows_done
        return self.stats.outputs / done if done and self.spec.pairs else 1.0

    @property
    def _sweep(self) -> SweepJoin:
        assert isinstance(self.wrapped, SweepJoin)
        return self.wrapped
