"""Intake: admits stream tuples to an operator as its budget allows, and releases them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.parts.memory_split import MemorySplit
from semistream.kernels.array_types import Int64s
from semistream.keys import CodeRanges
from semistream.keys.plain_types import empty_batch
from semistream.relation.format.row_sizes import row_sizes, widest

_CHARGE = "stream tuples"


@dataclass(frozen=True)
class Admitted:
    """Admitted tuples: their rows, the bytes of each, and the codes they ask R for."""

    batch: pa.RecordBatch
    sizes: Int64s
    ranges: CodeRanges


class Taken(NamedTuple):
    """Rows taken, the bytes of each, and the bytes charged for each (None if nothing was charged).

    The charges are kept because the size of a nested value depends on nulls in the rows beside it.
    """

    batch: pa.RecordBatch
    sizes: Int64s
    charged: Int64s | None


class Intake:
    """Charges stream tuples to the budget when they come, and releases the charge when they leave.

    With ``keeps_batches`` the operator holds on to the batches it is given instead of copying their rows. ``columns``
    lists the columns to charge, None for all.
    """

    def __init__(
        self,
        spec: JoinSpec,
        split: MemorySplit,
        budget: MemoryBudget,
        *,
        keeps_batches: bool = True,
        columns: list[int] | None = None,
    ) -> None:
        self._columns = columns
        self._keeps_batches = keeps_batches
        self._condition = spec.condition
        self._split = split
        self._budget = budget
        self._admit_rows = split.admit_rows
        self._payload_bytes = split.payload_bytes
        self.held_bytes = 0  # charged bytes of all admitted tuples

    def resize(self, *, admit_rows: int, payload_bytes: int) -> None:
        """Set new limits: ``admit_rows`` at once and ``payload_bytes`` in total; tuples already admitted stay."""
        self._admit_rows = admit_rows
        self._payload_bytes = payload_bytes

    def admit(self, batch: pa.RecordBatch, start: int, room: int, most_bytes: int | None = None) -> Admitted | None:
        """Admit up to ``room`` tuples from row ``start`` on; return None if none fits now.

        A row too wide for the budget raises `BudgetError`. With ``most_bytes`` the tuples have at most these bytes,
        unless it is a single one.
        """
        taken = self.take(batch, start, room, most_bytes)
        return None if taken is None else Admitted(taken.batch, taken.sizes, self.ranges(taken.batch))

    def ranges(self, batch: pa.RecordBatch) -> CodeRanges:
        """Return the codes that tuples ask R for; any thread may call this."""
        return self._condition.ranges(batch)

    def take(self, batch: pa.RecordBatch, start: int, room: int, most_bytes: int | None = None) -> Taken | None:
        """Take tuples like `admit`, without computing their codes."""
        room = min(room, self._admit_rows)
        if room <= 0:
            return None
        piece = batch.slice(start, room)
        sizes = row_sizes(piece)
        self._split.require_narrow(widest(sizes), self._budget)
        charged = self._charged(piece, sizes)
        if charged is None:
            return Taken(piece, sizes, None)
        most = self._payload_bytes - self.held_bytes
        if most_bytes is not None:
            most = min(most, max(most_bytes, int(charged[0])))
        fits = int(np.searchsorted(np.cumsum(charged), most, "right"))
        if fits == 0:
            return None
        piece, taken = piece.slice(0, fits), int(charged[:fits].sum())
        self._budget.charge(_CHARGE, taken)
        self.held_bytes += taken
        if self._keeps_batches and piece.get_total_buffer_size() > 2 * piece.nbytes:
            piece = _own_copy(piece)  # otherwise a few rows would keep a large batch in memory
        return Taken(piece, sizes[:fits], charged[:fits])

    def require_narrow(self, batch: pa.RecordBatch) -> None:
        """Raise `BudgetError` if a row of the batch is too wide for the budget."""
        self._split.require_narrow(widest(row_sizes(batch)), self._budget)

    def _charged(self, batch: pa.RecordBatch, sizes: Int64s) -> Int64s | None:
        """Return the bytes to charge for each row; None if nothing is charged."""
        if self._columns is None:
            return sizes
        return row_sizes(batch.select(self._columns)) if self._columns else None

    def release(self, sizes: Int64s) -> None:
        """Release tuples of these sizes."""
        self.give_back(int(sizes.sum()))

    def give_back(self, nbytes: int) -> None:
        """Release tuples charged with ``nbytes``."""
        self._budget.release(_CHARGE, nbytes)
        self.held_bytes -= nbytes


def _own_copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, empty_batch(batch.schema)])
