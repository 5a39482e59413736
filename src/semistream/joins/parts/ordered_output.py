"""OrderedOutput: results in the order of the stream (MESH 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.kernels.page_cuts import cut_pages
from semistream.relation.format.row_sizes import row_sizes

NUMBER_COLUMN = "_semistream_number"
_CHARGE = "ordered output"
_COPIES = 3  # of held results: as they came, concatenated, and sorted
_NUMBER_BYTES = 8
_BATCH_BYTES = 1 << 20

Join = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]


class OrderedOutput:
    """Holds the results of a group of tuples until the whole group is joined, and yields them in stream order.

    The tuples of a batch are numbered and joined group by group, each group to its end. Groups are as large as
    possible: if a group's results outgrow ``budget``, they are dropped and half as many tuples are tried; while they
    take less than a third of it, the next group is twice as large. The results of a single tuple have no order among
    themselves and are not held. Any join can thus be ordered within its memory, at the price of a pass over R per group
    and a flush per batch: push large batches.

    ``join`` joins tuples to their end. ``forget`` is called when the tuples joined last will be joined again.
    """

    def __init__(self, budget: MemoryBudget, join: Join, forget: Callable[[], None]) -> None:
        self._budget = budget
        self._join = join
        self._forget = forget
        self._most_rows = max(budget.limit // 8 // _NUMBER_BYTES, 1)
        self._most_bytes = (budget.limit - self._most_rows * _NUMBER_BYTES) // _COPIES
        self._group_rows = self._most_rows

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of a batch in the order of its rows."""
        done = 0
        while done < batch.num_rows:
            group = _numbered(batch.slice(done, self._group_rows))
            if group.num_rows == 1:
                self._group_rows = min(2, self._most_rows)
                yield from self._join(group)
            else:
                held = self._hold(group)
                if held is None:
                    self._forget()
                    self._group_rows = (group.num_rows + 1) // 2
                    continue
                yield from self._sorted(held)
            done += group.num_rows

    def _hold(self, group: pa.RecordBatch) -> list[pa.RecordBatch] | None:
        """Return all results of a group, or None if they exceed the budget; the group must then be joined again."""
        held: list[pa.RecordBatch] | None = []
        total = 0
        for result in self._join(group):
            if held is None:
                continue
            nbytes = int(row_sizes(result).sum())
            if total + nbytes > self._most_bytes:
                held = None
                self._budget.release(_CHARGE, _COPIES * total)
                continue
            self._budget.charge(_CHARGE, _COPIES * nbytes)
            total += nbytes
            held.append(result)
        if 3 * total < self._most_bytes:
            self._group_rows = min(max(self._group_rows, 2 * group.num_rows), self._most_rows)
        return held

    def _sorted(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if held:
            together = pa.concat_batches(held)
            held.clear()
            order = np.argsort(together.column(NUMBER_COLUMN).to_numpy(), kind="stable")
            together = together.take(pa.array(order))
            ends = np.cumsum(row_sizes(together))
            for begin, end in pairwise([*cut_pages(ends, _BATCH_BYTES).tolist(), together.num_rows]):
                yield together.slice(begin, end - begin)
        self._budget.release(_CHARGE, self._budget.by_name.get(_CHARGE, 0))


def _numbered(group: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array(np.arange(group.num_rows))
    return group.append_column(pa.field(NUMBER_COLUMN, pa.int64(), nullable=False), numbers)
