"""The joins of a Python worker: join operators that outlive a task, with their caches, as soft state.

RoutedJoin: a worker has one part of R at a time, for rows that were sent to the owner of their key.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from semistream.joins.base import SemiStreamJoin
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.plan.key_ranges import part_bounds, split_rows
from semistream.relation import Relation

_LOG = logging.getLogger(__name__)
_KEPT = 4  # joins of different plans that one worker keeps: each holds its plan's memory


@dataclass(frozen=True)
class WorkerJoinCounts:
    """What a worker join has counted, with all the operators that it had."""

    rows_in: int = 0
    cache_hits: int = 0
    bytes_read: int = 0
    peak_bytes: int = 0


class WorkerJoin:
    """The operator of one plan in this worker. It holds the plan's memory once: one part of R at a time."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self.relation = Relation.open(plan.path)
        self._part: int | None = None
        self._operator: SemiStreamJoin | None = None
        self._closed = WorkerJoinCounts()

    @property
    def counts(self) -> WorkerJoinCounts:
        """What was counted so far."""
        before = self._closed
        if self._operator is None:
            return before
        stats = self._operator.stats
        return WorkerJoinCounts(
            before.rows_in + stats.rows_in,
            before.cache_hits + stats.cache_hits,
            before.bytes_read + stats.bytes_read,
            max(before.peak_bytes, stats.peak_bytes),
        )

    def refresh(self, version: int | None = None) -> None:
        """Go over to a version of R, by default the one published last, if that is another one."""
        if version is None:
            wanted = self.relation.refreshed()  # reads one small file
        elif version == self.relation.version:
            wanted = self.relation
        else:
            wanted = Relation.open(self.plan.path, version)
        if wanted is not self.relation:
            if self._operator is not None and self._takes(wanted):
                self._operator.refresh(wanted)  # it keeps what it has cached of the rows that did not change
            else:
                self.close()
            self.relation = wanted
        self.plan.require_same_key(self.relation)

    def _takes(self, wanted: Relation) -> bool:
        """Whether the operator at hand can go over to a version of R, and is the one for it."""
        same_columns = (wanted.key, wanted.schema) == (self.relation.key, self.relation.schema)
        if self.plan.cuts or not same_columns:
            return False
        return isinstance(self._operator, self.plan.operator_for(wanted))

    def operator(self, part: int) -> SemiStreamJoin:
        """The operator for a part of R; one for another part is closed first, as both would not fit the memory."""
        if self._operator is None or self._part != part:
            self.close()
            narrowed = self.relation.part(*part_bounds(self.plan.cuts, part)) if self.plan.cuts else self.relation
            self._operator = self.plan.open_operator(narrowed)
            self._part = part
        return self._operator

    def close(self) -> None:
        """Let go of the operator, its memory and its files."""
        if self._operator is not None:
            _LOG.debug("closing the join of %s: %s", self.plan.path, self._operator.stats.as_dict())
            self._closed = self.counts
            self._operator.close()
            self._operator = None


class WorkerJoins:
    """WorkerJoins by plan, the one used last at the end. A worker runs one task at a time, so nothing is locked."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._lent = 0
        self._by_plan: OrderedDict[JoinPlan, WorkerJoin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_plan)

    @contextmanager
    def lend(self, plan: JoinPlan, version: int | None = None) -> Iterator[WorkerJoin]:
        """The plan's join on a version of R, by default the current one, for the length of a task.

        A task that fails or is abandoned half-way leaves an operator with tuples inside: it is dropped, never used
        again. A worker that has lost its join, or never had it, makes a new one.
        """
        worker_join = self._by_plan.pop(plan, None) or WorkerJoin(plan)
        self._lent += 1
        self._kept = max(self._kept, self._lent)  # a task that needs more of them at once needs them again
        try:
            worker_join.refresh(version)
            yield worker_join
        except BaseException:
            worker_join.close()
            raise
        finally:
            self._lent -= 1
        self._by_plan[plan] = worker_join
        while len(self._by_plan) > self._kept:
            self._by_plan.popitem(last=False)[1].close()


WORKER_JOINS = WorkerJoins()
"""This worker's joins. It is a global because a worker process outlives the tasks it runs, and only a module does."""


class RoutedJoin:
    """Joins rows with the part of R that holds their matches, whichever that is.

    Rows of another part than the one at hand are rare if routing did its work; then what waits is joined first.
    """

    def __init__(self, worker_join: WorkerJoin) -> None:
        self._worker_join = worker_join
        self._plan = worker_join.plan
        self._part = 0
        self._operator: SemiStreamJoin | None = None

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; results come out when room has to be made for it."""
        plan, codec = self._plan, self._worker_join.relation.codec
        for owner, piece in split_rows(batch, plan.stream_keys, codec, plan.cuts, self._part):
            if self._operator is not None and owner != self._part:
                yield from self._operator.flush()
            self._part = owner
            self._operator = self._worker_join.operator(owner)
            yield from self._operator.push(piece)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Join all rows that wait."""
        if self._operator is not None:
            yield from self._operator.flush()
