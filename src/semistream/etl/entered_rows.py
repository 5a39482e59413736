"""EnteredRows: numbers of their own for rows that enter a link, since results of one source row share its number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.etl.row_flags import Bools, Numbers, RowFlags


class EnteredRows:
    """Gives each row that enters a number of its own in a ``column``, and its old one when it comes out again.

    >>> entered = EnteredRows("n")
    >>> rows = entered.enter(pa.record_batch({"n": [7, 7]}))
    >>> rows.column("n").to_pylist(), entered.leave(rows).column("n").to_pylist()
    ([0, 1], [7, 7])
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._old = np.zeros(0, np.int64)
        self._rows = 0
        self._met = RowFlags()

    def enter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with new numbers."""
        begin, end = self._rows, self._rows + rows.num_rows
        if end > self._old.size:
            more = np.zeros(max(end, 2 * self._old.size) - self._old.size, np.int64)
            self._old = np.concatenate([self._old, more])
        self._old[begin:end] = rows.column(self._column).to_numpy()
        self._rows = end
        return self._numbered(rows, np.arange(begin, end))

    def leave(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the numbers that they had before."""
        return self._numbered(rows, self._old[rows.column(self._column).to_numpy()])

    def first(self, rows: pa.RecordBatch, matched: Bools) -> Bools:
        """Which matched results are the first of their row, among all that were asked for."""
        numbers, here = rows.column(self._column).to_numpy(), np.flatnonzero(matched)
        _, places = np.unique(numbers[here], return_index=True)
        places = here[places]
        first = np.zeros(numbers.size, np.bool_)
        first[places] = ~self._met.are_set(numbers[places])
        self._met.set(numbers[places])
        return first

    def _numbered(self, rows: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
        at = rows.schema.get_field_index(self._column)
        return rows.set_column(at, rows.schema.field(at), pa.array(numbers))
