"""Arrangement: splits an operator's budget and builds its parts, again after each change of budget or version of R."""

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
    """Reservation of budget for ordered output, deadlines and conversions; the operator's own loop gets the rest."""

    ordered: bool = False
    deadlines: bool = False
    converts: bool = False

    def operator_bytes(self, limit: int) -> int:
        """Return the bytes of ``limit`` left for the operator's own loop."""
        rest = limit
        if self.deadlines:
            rest -= Deadlines.memory_bytes(limit)
        if self.converts:
            rest -= self.conversion_bytes(limit)
        return rest - rest // 2 if self.ordered else rest

    @staticmethod
    def conversion_bytes(limit: int) -> int:
        """Return the bytes for values converted at a time, from the stream's types and back."""
        return limit // 8

    def of_whole(self, error: BudgetError, limit: int) -> BudgetError:
        """Restate an error about the operator's part of the budget in terms of the whole budget."""
        if error.least_bytes is None or not (self.ordered or self.deadlines or self.converts):
            return error
        least = bisect_left(range(4 * error.least_bytes + (1 << 20)), error.least_bytes, key=self.operator_bytes)
        return BudgetError(
            f"{error} With the reserve for order, deadlines and conversions of types, memory must be at least {least} "
            f"bytes; it is {limit}.",
            least_bytes=least,
        )


class Arrangement(JoinLoop):
    """Builds the parts of an operator that depend on R's version and on the budget.

    Ordered output, deadlines and conversions take their parts of ``budget``; the operator's own loop gets the rest
    (``_memory``). If the budget is too small, the error names the smallest whole budget that works.
    """

    _memory: MemoryBudget
    _deadlines: Deadlines | None
    _set_aside: SetAside
    _order: OrderedOutput | None

    @abstractmethod
    def _attach_watcher(self) -> None:
        """Connect the pair watchers to the newly built parts."""

    @abstractmethod
    def _convert(self, nbytes: int) -> None:
        """Convert the stream's types to plain ones, and results back, within ``nbytes``."""

    @abstractmethod
    def _push_through(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join a group of tuples completely."""

    @abstractmethod
    def _forget(self) -> None:
        """Undo the counts of the last `_push_through`, because its tuples will be joined again."""

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
        """Use this version of R from now on, and adopt its page layout, which a rebuild may have changed."""
        self.relation = relation
        self.spec = self.spec.laid_out(relation.layout)

    def _put_together(self, *, may_grow: bool = False) -> None:
        """Reserve memory for order, deadlines and conversions, and arrange the operator in the rest.

        With ``may_grow``, a budget that is too small grows to the least that works.
        """
        limit, shares = self.budget.limit, self._set_aside
        own = shares.operator_bytes(limit)
        self._memory = self.budget if own == limit else self.budget.part(max(own, 1))
        try:
            self.arrange()
        except BudgetError as error:
            of_whole = shares.of_whole(error, limit)
            if not may_grow or (of_whole.least_bytes or 0) <= limit:
                raise of_whole from None
            self.budget.clear()
            self.stats.budget_bytes = of_whole.least_bytes or limit
            self.budget.resize(self.stats.budget_bytes)
            self._put_together(may_grow=True)
            return
        if shares.deadlines:
            self.budget.charge("deadlines", Deadlines.memory_bytes(limit))
        self._convert(shares.conversion_bytes(limit) if shares.converts else 0)
        if shares.ordered:
            self._order = OrderedOutput(self.budget.part(self.budget.free), self._push_through, self._forget)
        self._attach_watcher()

    def _arrange_anew(self) -> None:
        """Arrange the operator again in the same memory, in the middle of a push. No tuple may be waiting in it."""
        self.close()
        self._memory.clear()
        self.arrange()
        self._attach_watcher()
