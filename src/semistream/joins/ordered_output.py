"""Results in the order of the stream (MESH 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.row_sizes import row_sizes
from semistream.kernels.page_cuts import cut_pages

NUMBER_COLUMN = "_number"
_CHARGE = "ordered output"
_COPIES = 3  # of held results: as they came, put together, and in order
_BATCH_BYTES = 1 << 20

Join = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]


class OrderedOutput:
    """Holds the results of a group of tuples until all of them are through, and gives them out in stream order.

    The tuples of a batch are numbered and joined group by group, each to its end. As many as possible make a group: if
    the results of one outgrow ``budget``, they are dropped and its halves are joined one after the other. The results
    of a single tuple have no order among themselves and are not held. So any join comes out in order within the
    memory, at the price of a pass over R for every group, and of a flush for every batch: push large ones.
    """

    def __init__(self, budget: MemoryBudget, join: Join, forget: Callable[[pa.RecordBatch], None]) -> None:
        self._budget = budget
        self._join = join
        self._forget = forget
        self._most_bytes = budget.limit // _COPIES
        self._group_rows = 1 << 62
        self._next = 0

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The results of a batch, in the order of its rows."""
        numbers = pa.array(np.arange(self._next, self._next + batch.num_rows))
        self._next += batch.num_rows
        numbered = batch.append_column(pa.field(NUMBER_COLUMN, pa.int64(), nullable=False), numbers)
        done = 0
        while done < batch.num_rows:
            group = numbered.slice(done, self._group_rows)
            yield from self._ordered(group)
            done += group.num_rows

    def _ordered(self, group: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if group.num_rows == 1:
            yield from self._join(group)
            return
        held = self._hold(group)
        if held is None:
            self._forget(group)
            half = (group.num_rows + 1) // 2
            self._group_rows = half
            yield from self._ordered(group.slice(0, half))
            yield from self._ordered(group.slice(half))
            return
        self._group_rows = max(self._group_rows, 2 * group.num_rows)
        yield from self._sorted(held)

    def _hold(self, group: pa.RecordBatch) -> list[pa.RecordBatch] | None:
        """All results of a group; None if they are too many, and then the group is joined in vain."""
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
