"""How an operator is arranged in a budget for a version of R, taken apart, and arranged anew."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.parts.deadlines import Deadlines
from semistream.joins.parts.ordered_output import OrderedOutput
from semistream.joins.parts.stats import JoinStats
from semistream.relation import Relation


class Arrangement(ABC):
    """What of an operator depends on R's version and on its budget, made anew when one of them changes.

    Order and deadlines have their parts of the ``budget``, and the operator itself the rest (``_memory``). A budget
    that is too small is refused with the least that the whole of it must be.
    """

    budget: MemoryBudget
    relation: Relation
    spec: JoinSpec
    stats: JoinStats
    _memory: MemoryBudget
    _deadlines: Deadlines | None
    _ordered: bool
    _order: OrderedOutput | None

    @abstractmethod
    def _arrange(self) -> None:
        """Make all that depends on R's version and on the budget. No tuple waits; caches may hold what is still true.

        It is called when an operator is made, and again after `refresh` and `set_memory`.
        """

    @abstractmethod
    def close(self) -> None:
        """End the background reader and close files."""

    @abstractmethod
    def _attach_watcher(self) -> None:
        """Tell who watches pairs of those that are found from now on."""

    @abstractmethod
    def _push_through(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join some tuples to their end."""

    @abstractmethod
    def _forget(self) -> None:
        """The tuples that were pushed through last are to be joined again: what was counted of them is not true."""

    def _rearrange(self, relation: Relation, limit: int) -> None:
        self._take_apart(relation, limit)
        self._put_together()

    def _take_apart(self, relation: Relation, limit: int) -> None:
        self.close()
        self.budget.clear()
        self.budget.resize(limit)
        self._open(relation)
        self.stats.budget_bytes = limit

    def _open(self, relation: Relation) -> None:
        """Join with this version from now on; if it was built anew, its pages may be laid out in another way."""
        self.relation = relation
        self.spec = self.spec.laid_out(relation.layout)

    def _put_together(self) -> None:
        """Set aside what order and deadlines cost, and let the operator arrange itself in the rest."""
        limit = self.budget.limit
        whole = self._deadlines is None and not self._ordered
        self._memory = self.budget if whole else self.budget.part(max(self._operator_bytes(limit), 1))
        try:
            self._arrange()
        except BudgetError as error:
            raise self._of_whole(error) from None
        if self._deadlines is not None:
            self.budget.charge("deadlines", Deadlines.memory_bytes(limit))
        if self._ordered:
            self._order = OrderedOutput(self.budget.part(self.budget.free), self._push_through, self._forget)
        self._attach_watcher()

    def _operator_bytes(self, limit: int) -> int:
        """What a budget leaves for the operator itself, besides order and deadlines."""
        if self._deadlines is not None:
            limit -= Deadlines.memory_bytes(limit)
        return limit - limit // 2 if self._ordered else limit

    def _of_whole(self, error: BudgetError) -> BudgetError:
        """An error that speaks of the operator's part of the budget, as one of the whole."""
        if error.least_bytes is None or self._memory is self.budget:
            return error
        least = bisect_left(range(4 * error.least_bytes + (1 << 20)), error.least_bytes, key=self._operator_bytes)
        return BudgetError(
            f"{error} With what is set aside for order and deadlines, memory must be {least} bytes; it is "
            f"{self.budget.limit}.",
            least_bytes=least,
        )

    def _arrange_anew(self) -> None:
        """Let the operator arrange itself again in its memory, in the middle of a push; no tuple waits in it."""
        self.close()
        self._memory.clear()
        self._arrange()
        self._attach_watcher()
