"""Arrangement: an operator laid out in a budget for one version of R, and laid out again when either changes."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.loop import JoinLoop
from semistream.joins.parts.deadlines import Deadlines
from semistream.joins.parts.ordered_output import OrderedOutput
from semistream.relation import Relation


@dataclass(frozen=True)
class SetAside:
    """The parts of a budget that order and deadlines take; the operator's own loop has the rest."""

    ordered: bool
    deadlines: bool

    def operator_bytes(self, limit: int) -> int:
        """Bytes left for the operator itself."""
        if self.deadlines:
            limit -= Deadlines.memory_bytes(limit)
        return limit - limit // 2 if self.ordered else limit

    def of_whole(self, error: BudgetError, limit: int) -> BudgetError:
        """Restate an error about the operator's part of the budget as one about the whole."""
        if error.least_bytes is None or not (self.ordered or self.deadlines):
            return error
        least = bisect_left(range(4 * error.least_bytes + (1 << 20)), error.least_bytes, key=self.operator_bytes)
        return BudgetError(
            f"{error} With what is set aside for order and deadlines, memory must be {least} bytes; it is {limit}.",
            least_bytes=least,
        )


class Arrangement(JoinLoop):
    """The parts of an operator that depend on R's version and on its budget.

    Order and deadlines have their parts of the ``budget``, the operator's own loop the rest (``_memory``). A budget
    that is too small is refused, with the least that the whole of it must be.
    """

    _memory: MemoryBudget
    _deadlines: Deadlines | None
    _set_aside: SetAside
    _order: OrderedOutput | None

    @abstractmethod
    def _attach_watcher(self) -> None:
        """Tell who watches pairs of those that are found from now on."""

    @abstractmethod
    def _push_through(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join some tuples to their end."""

    @abstractmethod
    def _forget(self) -> None:
        """The tuples that were pushed through last are to be joined again: what was counted of them is not true."""

    def rearrange(self, relation: Relation, limit: int) -> None:
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
        limit, shares = self.budget.limit, self._set_aside
        own = shares.operator_bytes(limit)
        self._memory = self.budget if own == limit else self.budget.part(max(own, 1))
        try:
            self.arrange()
        except BudgetError as error:
            raise shares.of_whole(error, limit) from None
        if shares.deadlines:
            self.budget.charge("deadlines", Deadlines.memory_bytes(limit))
        if shares.ordered:
            self._order = OrderedOutput(self.budget.part(self.budget.free), self._push_through, self._forget)
        self._attach_watcher()

    def _arrange_anew(self) -> None:
        """Let the operator arrange itself again in its memory, in the middle of a push; no tuple waits in it."""
        self.close()
        self._memory.clear()
        self.arrange()
        self._attach_watcher()
