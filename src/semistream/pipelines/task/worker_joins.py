"""Joins of a Python worker: operators that outlive a task, with their caches, as soft state.

`WorkerJoins` keeps a `WorkerJoin` for each plan. `RoutedJoin` joins rows with the part of R that owns their keys, one
part at a time.
"""

from __future__ import annotations

import logging
import socket
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from semistream.errors import NotARelation
from semistream.joins.base import SemiStreamJoin
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.plan.key_ranges import part_bounds, split_rows
from semistream.relation import Relation

_LOG = logging.getLogger(__name__)
_KEPT = 4  # joins that one worker keeps, each with the memory of its plan


@dataclass(frozen=True)
class WorkerJoinCounts:
    """Counts of a worker join, over all operators that it has had."""

    rows_in: int = 0
    matched: int = 0
    cache_hits: int = 0
    bytes_read: int = 0
    peak_bytes: int = 0


class WorkerJoin:
    """Operator of one plan in this worker. It has one part of R at a time, so it holds the plan's memory once."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self.relation = _open_here(plan.path)
        self._part: int | None = None
        self._operator: SemiStreamJoin | None = None
        self._closed = WorkerJoinCounts()

    @property
    def counts(self) -> WorkerJoinCounts:
        """Counts so far."""
        before = self._closed
        if self._operator is None:
            return before
        stats = self._operator.stats
        return WorkerJoinCounts(
            before.rows_in + stats.rows_in,
            before.matched + stats.matched,
            before.cache_hits + stats.cache_hits,
            before.bytes_read + stats.bytes_read,
            max(before.peak_bytes, stats.peak_bytes),
        )

    def refresh(self, version: int | None = None) -> None:
        """Switch to a version of R, by default the current one, if it differs from the open one."""
        if version is None:
            wanted = self.relation.refreshed()  # reads one small file
        elif version == self.relation.version:
            wanted = self.relation
        else:
            wanted = Relation.open(self.plan.path, version)
        if wanted is not self.relation:
            if self._operator is not None and self._takes(wanted):
                self._operator.refresh(wanted)  # keeps cached rows that did not change
            else:
                self.close()
            self.relation = wanted
        self.plan.require_same_key(self.relation)

    def _takes(self, wanted: Relation) -> bool:
        """True if the open operator can switch to a version of R, and is the right kind for it."""
        same_columns = (wanted.key, wanted.schema) == (self.relation.key, self.relation.schema)
        if self.plan.cuts or not same_columns:
            return False
        return isinstance(self._operator, self.plan.operator_for(wanted))

    def operator(self, part: int) -> SemiStreamJoin:
        """Return the operator for a part of R; close that of another part first, as both would exceed the memory."""
        if self._operator is None or self._part != part:
            self.close()
            narrowed = self.relation.part(*part_bounds(self.plan.cuts, part)) if self.plan.cuts else self.relation
            self._operator = self.plan.open_operator(narrowed)
            self._part = part
        return self._operator

    def close(self) -> None:
        """Close the operator, and free its memory and files."""
        if self._operator is not None:
            _LOG.debug("closing the join of %s: %s", self.plan.path, self._operator.stats.as_dict())
            self._closed = self.counts
            self._operator.close()
            self._operator = None


def _open_here(path: str) -> Relation:
    """Open a relation in a worker; the error names the host, since the driver has opened the relation before."""
    try:
        return Relation.open(path)
    except (NotARelation, OSError) as error:
        raise NotARelation(
            f"the worker on {socket.gethostname()} cannot open {path}, which the driver could: {error} Put the "
            "relation on a file system that the driver and all executors share, mounted at the same path; or build it "
            "again, if it has been removed since."
        ) from error


class WorkerJoins:
    """Worker joins by plan, the most recently used last. Not locked: a worker runs one task at a time."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._lent = 0
        self._by_plan: OrderedDict[JoinPlan, WorkerJoin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_plan)

    @contextmanager
    def lend(self, plan: JoinPlan, version: int | None = None) -> Iterator[WorkerJoin]:
        """Lend the plan's join on a version of R, by default the current one, to a task.

        A task that fails or is abandoned half-way leaves tuples in the operator, which is then dropped. A worker
        without the plan's join opens a new one.
        """
        worker_join = self._by_plan.pop(plan, None) or WorkerJoin(plan)
        self._lent += 1
        self._kept = max(self._kept, self._lent)  # a task that needs more joins at once will need them again
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
"""This worker's joins. A global, because of all objects in a worker process only modules outlive its tasks."""


class RoutedJoin:
    """Join of rows with the part of R that holds their matches, whichever part this is.

    Before it switches to another part, all waiting rows are joined. With routed rows this is rare.
    """

    def __init__(self, worker_join: WorkerJoin) -> None:
        self._worker_join = worker_join
        self._plan = worker_join.plan
        self._part = 0
        self._operator: SemiStreamJoin | None = None

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; yield the results that come out to make room for it."""
        plan, codec = self._plan, self._worker_join.relation.codec
        for owner, piece in split_rows(batch, plan.stream_keys, codec, plan.cuts, self._part):
            if self._operator is not None and owner != self._part:
                yield from self._operator.flush()
            self._part = owner
            self._operator = self._worker_join.operator(owner)
            yield from self._operator.push(piece)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Join all waiting rows."""
        if self._operator is not None:
            yield from self._operator.flush()
