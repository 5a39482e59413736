"""Finds the keys that a join keeps missing: the frequency recorder of a front stage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.joins.key_counters import KeyCounters
from semistream.joins.tuple_cache import CacheRows, TupleCache
from semistream.kernels.frequency import rows_of_keys
from semistream.kernels.types import Bools, Int32s, Int64s
from semistream.relation import PageRun
from semistream.relation.page_layout import ColumnLayout, PageLayout
from semistream.relation.page_table import PageTable
from semistream.relation.row_gatherer import row_bytes

_MOST_ROWS = 1 << 14  # noted of one run


class HotKeys:
    """Counts what the wrapped join reads from R for the stream, and keeps rows of the keys it reads most for the cache.

    Keys are counted by `KeyCounters` with so many ``bits``. Rows of a key that comes to be counted more than
    ``threshold`` times are copied from the page at hand, all rows of the key together; a key that spans pages is left
    out. They wait, in at most ``nbytes``, until `take`.
    """

    def __init__(self, columns: tuple[ColumnLayout, ...], layout: PageLayout, *, nbytes: int, bits: int) -> None:
        self.threshold = 2
        self._columns = columns
        self._layout = layout
        self._counters = KeyCounters(bits)
        self._most_bytes = nbytes
        self._waiting: list[CacheRows] = []
        self.waiting_bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more rows are taken in before `take`."""
        return self.waiting_bytes >= self._most_bytes

    def observe(self, table: PageTable, run: PageRun, page: Int32s, row: Int32s) -> None:
        """Count pairs of a stream tuple and a row of a run, all that have equal codes, and note hot keys."""
        if self.full:
            return
        most_rows = int(run.rows.max(initial=0))
        page, row, count = self._counters.count(
            run.words, run.code_starts, page, row, most_rows=most_rows, threshold=self.threshold
        )
        if page.size:
            whole = _within_page(table, run, page, row)
            self._note(run, page[whole], row[whole], count[whole])

    def _note(self, run: PageRun, page: Int32s, row: Int32s, count: Int32s) -> None:
        all_page, all_row, key = (np.empty(_MOST_ROWS, np.int32) for _ in range(3))
        rows = rows_of_keys(run.words, run.code_starts, run.rows, page, row, all_page, all_row, key)
        all_page, all_row, key = all_page[:rows], all_row[:rows], key[:rows]
        ends = np.cumsum(row_bytes(run, self._columns, all_page, all_row) + 8)
        rows = int(np.searchsorted(ends, self._most_bytes - self.waiting_bytes, "right"))
        while 0 < rows < key.size and key[rows] == key[rows - 1]:
            rows -= 1  # all rows of a key or none
        if rows == 0:
            self.waiting_bytes = self._most_bytes
            return
        all_page, all_row = all_page[:rows], all_row[:rows]
        codes = run.words[run.code_starts[all_page] + all_row]
        arrays = [pa.array(codes), *run.gather(self._columns, all_page, all_row)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema)
        self._waiting.append(CacheRows(batch, count[key[:rows]]))
        self.waiting_bytes += int(ends[rows - 1])

    def take(self, cache: TupleCache) -> CacheRows | None:
        """The rows that wait, in the order of their codes, each key once and none that ``cache`` has; None if none."""
        waiting, self._waiting, self.waiting_bytes = self._waiting, [], 0
        if not waiting:
            return None
        batch = pa.concat_batches([rows.batch for rows in waiting])
        number = np.repeat(np.arange(len(waiting)), [rows.frequency.size for rows in waiting])
        codes = batch.column(0).to_numpy()
        order = np.lexsort((-number, codes))  # of a key noted twice the later rows: they were counted last
        codes, number = codes[order], number[order]
        first = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
        latest = np.repeat(number[first], np.diff(np.append(first, codes.size)))
        kept = (number == latest) & ~cache.holds(codes)
        frequency = np.concatenate([rows.frequency for rows in waiting])[order][kept]
        return CacheRows(batch.take(pa.array(order[kept])), frequency)

    def forget(self) -> None:
        """Let the rows that wait go: they may not be true any more."""
        self._waiting, self.waiting_bytes = [], 0

    def age(self) -> None:
        """Halve all counts."""
        self._counters.age()


def _within_page(table: PageTable, run: PageRun, page: Int32s, row: Int32s) -> Bools:
    """Which rows have keys that lie in their page alone."""
    number = run.pages[page]
    code: Int64s = run.words[run.code_starts[page] + row]
    before, after = np.maximum(number - 1, 0), np.minimum(number + 1, len(table) - 1)
    begins = (number > 0) & (table.last_code[before] == code)
    goes_on = (number < len(table) - 1) & (table.first_code[after] == code)
    alone: Bools = ~(begins | goes_on)
    return alone
