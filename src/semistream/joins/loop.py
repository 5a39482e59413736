"""JoinLoop: an operator's loop, as its driver and a stage in front of it see it."""

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
    """The part of an operator that is its own: tuples are fed in, the loop is turned, and results come out.

    `SemiStreamJoin` drives it for a user, with deadlines, order and versions. `FrontStage` drives the loop of the join
    behind it by the same few calls. Results are complete only when `drain` has ended.
    """

    budget: MemoryBudget
    relation: Relation
    spec: JoinSpec
    stats: JoinStats

    @abstractmethod
    def feed(self, batch: pa.RecordBatch) -> Results:
        """Take tuples in, and turn the loop whenever there is no room for more."""

    @abstractmethod
    def turn(self) -> Results:
        """Do one iteration; nothing if no tuple waits."""

    def drain(self) -> Results:
        """Turn the loop until no tuple waits."""
        while self.stats.rows_waiting:
            yield from self.turn()

    @abstractmethod
    def arrange(self) -> None:
        """Build everything that depends on R's version and on the budget.

        Called when an operator is made, and again after a change of version or memory. No tuple waits then. Caches may
        keep what is still valid.
        """

    @abstractmethod
    def rearrange(self, relation: Relation, limit: int) -> None:
        """Go over to a version of R and a budget. No tuple waits."""

    @abstractmethod
    def share_deadlines(self, deadlines: Deadlines | None, column: int) -> None:
        """Report tuples that are done to the deadlines of the stage in front; ``column`` holds each tuple's."""

    @property
    @abstractmethod
    def disk_counts(self) -> DiskCounts:
        """Requests, seeks, pages and bytes read so far."""

    def pages_to_drain(self) -> int:
        """Pages to ask of the disk until no tuple waits, or an upper bound."""
        return self.relation.num_pages if self.stats.rows_waiting else 0

    def pages_asked(self) -> int:
        """Pages asked for that have not arrived."""
        return 0

    def row_counts(self) -> tuple[int, ...]:
        """Counts of tuples so far, for `recount`."""
        return self.stats.rows_in, self.stats.rows_done, self.stats.matched, self.stats.unmatched

    def recount(self, counts: tuple[int, ...]) -> None:
        """Return to earlier counts: the tuples since then are joined again."""
        self.stats.rows_in, self.stats.rows_done, self.stats.matched, self.stats.unmatched = counts

    @abstractmethod
    def close(self) -> None:
        """End background threads and close files. Tuples that still wait are dropped."""
