"""JoinLoop: the interface of an operator's own loop, called by `SemiStreamJoin` and by `FrontStage`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.parts.deadlines import Deadlines
from semistream.joins.parts.stats import JoinStats
from semistream.relation import DiskCounts, Relation

Results = Iterator[pa.RecordBatch]


class JoinLoop(ABC):
    """Interface of an operator's own loop: `feed` takes tuples in, `turn` runs one iteration, `drain` runs all.

    `SemiStreamJoin` calls it for the user, and adds deadlines, order and versions of R. `FrontStage` calls the loop of
    the join behind it in the same way. Results are complete only after `drain` ends.
    """

    budget: MemoryBudget
    relation: Relation
    spec: JoinSpec
    stats: JoinStats

    @abstractmethod
    def feed(self, batch: pa.RecordBatch) -> Results:
        """Take tuples in, and run iterations whenever the operator is full."""

    @abstractmethod
    def turn(self) -> Results:
        """Run one iteration; do nothing if no tuple waits."""

    def drain(self) -> Results:
        """Run iterations until no tuple waits."""
        while self.stats.rows_waiting:
            yield from self.turn()

    @abstractmethod
    def arrange(self) -> None:
        """Build everything that depends on R's version and on the budget.

        Called when the operator is created, and again after a change of version or memory. No tuple waits at that time.
        Caches may keep rows that are still valid.
        """

    @abstractmethod
    def rearrange(self, relation: Relation, limit: int) -> None:
        """Switch to another version of R and another budget. No tuple may be waiting."""

    @abstractmethod
    def share_deadlines(self, deadlines: Deadlines | None, column: int) -> None:
        """Report finished tuples to the deadlines of the stage in front; ``column`` holds each tuple's deadline."""

    @property
    @abstractmethod
    def disk_counts(self) -> DiskCounts:
        """Requests, seeks, pages and bytes read so far."""

    def pages_to_drain(self) -> int:
        """Return the number of pages to request until no tuple waits, or an upper bound."""
        return self.relation.num_pages if self.stats.rows_waiting else 0

    def pages_asked(self) -> int:
        """Return the number of pages requested but not processed yet."""
        return 0

    def row_counts(self) -> tuple[int, ...]:
        """Return the counts of tuples so far, for `recount`."""
        return self.stats.rows_in, self.stats.rows_done, self.stats.matched, self.stats.unmatched

    def recount(self, counts: tuple[int, ...]) -> None:
        """Restore earlier counts, because the tuples since then will be joined again."""
        self.stats.rows_in, self.stats.rows_done, self.stats.matched, self.stats.unmatched = counts

    @abstractmethod
    def close(self) -> None:
        """Stop background threads and close files. Waiting tuples are dropped."""
