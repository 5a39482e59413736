"""EngineJoin: the papers' ideas together, tuned to the stream while it runs.

What a join knows of the machine that it runs on.
"""

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
from semistream.joins.base import JoinArguments
from semistream.joins.cache.front_stage import FrontStage, require_share
from semistream.joins.condition.spec import JoinSpec, join_workload
from semistream.joins.engine.stream_watch import BRIEF_BYTES, StreamWatch
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.parts.options import Check, anything
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import AnyRelation, Relation


def known_machine(relation: AnyRelation, arguments: Mapping[str, Any]) -> Machine | None:
    """This machine, by its profile or the defaults, if a join opens R's disk itself; None if it was given another."""
    return machine_for(relation.path) if isinstance(arguments.get("disk", "auto"), str) else None


CACHE_SHARES = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4)
"""Shares of the memory that the cache is tried with."""

_WATCH = "key sketch"
_NOTICED = 0.05  # of a tuple's time, from which saving it is worth anything
_CHANGE_PASSES = 1.5  # over R, that it takes to change the share and to fill the cache again
_MUCH = 0.35  # of a tuple's time: if that is saved, the stream must have changed, and is looked at soon again
_SEEN_IN_PASS, _MOST_UNSEEN = 4, 1 << 19  # batches that are watched, at least, and tuples between two of them, if the
# next look is four passes away: the more there are until then, the fewer need be watched in each
_FEW_ROWS = 1 << 14  # tuples that the cache misses between two looks, at least
_LEAST_PATIENCE, _MOST_PATIENCE = 4, 16  # passes that a change must pay in, and that are between two looks
_MODEL_ROWS = 1 << 13  # of a batch, that tell how much room a tuple takes
_FREE_PATIENCE = 4  # if no tuple waits, looks come so much sooner


def _require_share_if_given(option: str, value: float | None) -> None:
    if value is not None:
        require_share(option, value)


class EngineJoin(FrontStage):
    """The papers' ideas together: FRONT's tuple cache before a planned, overlapped sweep of tuples in key order.

    Tuples wait in the order of their codes, in all the memory that there is, for one endless sweep over the pages that
    they need (`SweepJoin`): MESHJOIN's shared scan where most pages are needed, SSIJ's read plan where few are. Payload
    is gathered last and once. Where hot keys are worth it, they are answered from memory as they come (`FrontStage`).

    How much of the memory the cache has is for the cost model to say, with the frequencies of the stream's keys, which
    are watched (`StreamWatch`), and the costs of the ``machine``: by default those that were calibrated, if they were.
    FRONT 3.2 finds the optimum for a distribution that is known, here it is found again as the distribution changes.
    There is no cache in front of a fast disk with much memory, and one in front of a slow disk or with a small memory
    under skew. The first look is at the first batch, the next ones after four passes over R, eight and sixteen while
    little changes, after one if much does, sooner if no tuple waits, as soon as none does if a change was not worth a
    pass, and at once if the stream has changed all of a sudden. Passes count in tuples that the cache misses, so that a
    cache which answers less and less is looked at soon.
    If ``cache_share`` is given, it stays. ``expected_share`` is where to begin if a tuner has chosen a share already.
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
        self._models: dict[float, OperatorModel | None] = {}  # by share; None if there is too little memory for it
        self._model_facts: JoinFacts | None = None
        self._next_look = 0  # tuples that the cache has missed, from which on the share is chosen again,
        self._next_free_look = 0  # and if none waits, so that a change costs nothing
        self._would_change = False  # if it did: it was found to save something, but less than it costs
        self._next_seen = 0  # tuples, from which on a batch is watched again
        self._patience = 2  # passes until then are twice as many; a sudden change is noticed at once
        share = expected_share if cache_share is None else cache_share
        super().__init__(relation, stream, cache_share=share or 0.0, **arguments)
        if expected_share is not None:
            self._patience = _LEAST_PATIENCE
            self._look_later()

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget, *, cache_share: float = 0.0) -> OperatorModel:
        """The model of the sweep, and of a cache of that share, beside what watches the stream."""
        memory.charge(_WATCH, StreamWatch.affordable_bytes(memory.limit))
        return super().model(facts, memory, cache_share=cache_share)

    @classmethod
    def _require_memory(cls, facts: JoinFacts, nbytes: int) -> None:
        """The sweep alone must fit: neither a cache nor a sketch of the stream is needed."""
        try:
            super()._require_memory(facts, nbytes)
        except BudgetError:
            cls.wraps.model(facts, MemoryBudget(nbytes))

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
        """With so little room that a row does not fit beside it, there is no cache to decide on either."""
        watched, self._decides = self._watch is not None and self._watch.nbytes > 0, False
        return super()._give_way() or watched

    def feed(self, batch: pa.RecordBatch) -> Results:
        if self._watch is not None and batch.num_rows and (self.stats.rows_in >= self._next_seen or self._is_due):
            unseen = min(self._sweep.pass_rows // _SEEN_IN_PASS, _MOST_UNSEEN)
            self._next_seen = self.stats.rows_in + unseen * max(self._patience // _LEAST_PATIENCE, 1)
            yield from self._see(batch, self._watch)
        yield from super().feed(batch)

    def _see(self, batch: pa.RecordBatch, watch: StreamWatch) -> Results:
        """Watch a batch, and choose the share of the cache anew if it is time to."""
        brief = 0 if watch.nbytes else BRIEF_BYTES
        room = self._sweep.budget  # of which there is some to spare while few results are on their way out
        if brief > room.free:
            return
        with room.charged(_WATCH, brief):
            changed = watch.see(batch)
            share, saved = self._best_share(batch, watch) if changed or self._is_due else (None, 0.0)
        if share is not None:
            yield from self._settle(share, saved)

    @property
    def _is_due(self) -> bool:
        """Whether it is time to choose again."""
        behind = self._sweep.stats
        return behind.rows_in >= (self._next_look if behind.rows_waiting else self._next_free_look)

    def _settle(self, share: float, saved: float) -> Results:
        """Let the cache have the share that is best for the stream as it is now."""
        self._patience = 1 if saved > _MUCH else min(2 * self._patience, _MOST_PATIENCE)
        if share != self.cache_share:
            yield from self._give(share)
        self._look_later()

    def _look_later(self) -> None:
        """Leave the share as it is for some passes over R."""
        pass_rows, seen = max(self._sweep.pass_rows, _FEW_ROWS), self._sweep.stats.rows_in
        self._next_look = seen + self._patience * pass_rows
        free_passes = 0 if self._would_change else max(self._patience // _FREE_PATIENCE, 1)
        self._next_free_look = seen + free_passes * pass_rows

    def _give(self, share: float) -> Results:
        """Let the cache have another share of the memory."""
        yield from self.wrapped.drain()
        self._count()
        self.cache_share = share
        self._arrange_anew()
        self._begin_period()

    def _best_share(self, sample: pa.RecordBatch, watch: StreamWatch) -> tuple[float, float]:
        """The share with which a tuple takes the least time, if it is worth it, and the part of its time that is saved.

        A change takes a pass over R if tuples wait, and what is saved until the next look must be more than that.
        """
        relation, frequencies = self.relation, watch.frequencies(sample)
        if frequencies is None or not relation.num_pages:
            return self.cache_share, 0.0
        workload = join_workload(relation, self.spec, frequencies, results_per_tuple=self._results_per_tuple)
        if self._model_facts is None:
            self._model_facts = JoinFacts(relation, self.spec, sample.slice(0, _MODEL_ROWS))
        seconds = {
            share: self._seconds(share, workload, self._model_facts) for share in {*CACHE_SHARES, self.cache_share}
        }
        best = min(seconds, key=lambda share: seconds[share])
        saved = 1 - seconds[best] / seconds[self.cache_share]
        passes = max(self._patience, _LEAST_PATIENCE)
        worth_it = saved * passes > _CHANGE_PASSES if self._sweep.stats.rows_waiting else saved > _NOTICED
        self._would_change = saved > _NOTICED and not worth_it
        return (best, saved) if worth_it else (self.cache_share, 0.0)

    def _seconds(self, share: float, workload: Workload, facts: JoinFacts) -> float:
        """What a tuple takes with a cache of such a share of the memory."""
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

    def rearrange(self, relation: Relation, limit: int) -> None:
        self._models.clear()
        self._model_facts = None
        super().rearrange(relation, limit)

    @property
    def _machine(self) -> Machine:
        """The machine as far as it is known; of its disk, what plans are made with."""
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
