"""HotKeys: the frequency recorder of a front stage, which finds hot keys that the cache misses and copies their rows.

`KeyCounters` estimates the frequency of each key in a few bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.joins.cache.kernels import count_hot_rows, rows_of_keys
from semistream.joins.cache.tuple_cache import CacheRows, TupleCache
from semistream.kernels.array_types import Int32s, Int64s
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout, PageLayout
from semistream.relation.format.page_table import PageTable
from semistream.relation.read.row_gatherer import RowGatherer, row_bytes

_LEAST_BITS = 8
_MOST_KEYS = 4096  # hot keys returned at a time
_SPARSE = 4  # counters per counted tuple; with fewer, collisions with other keys dominate the counts


class KeyCounters:
    """Approximate counts of key codes, kept between calls in ``2**bits`` one-byte counters.

    Each key has two counters, chosen by hashes of its code, and their minimum is never too low. When too many keys
    share the counters, only the codes of one call are counted, which are many then. `age` halves the counts, so that
    they follow the stream.
    """

    def __init__(self, bits: int) -> None:
        self._bits = max(bits, _LEAST_BITS)
        self._counters = np.zeros(1 << self._bits, np.uint8)
        self._asked = np.zeros(0, np.int32)
        self._page, self._row, self._count = (np.empty(_MOST_KEYS, np.int32) for _ in range(3))
        self._counted = 0  # codes, halved with the counts

    def count(
        self, words: Int64s, starts: Int64s, page: Int32s, row: Int32s, *, most_rows: int, threshold: int
    ) -> tuple[Int32s, Int32s, Int32s]:
        """Count codes, given by (stretch, position in it), once per occurrence and ordered by stretch.

        A stretch has at most ``most_rows`` codes, ascending. Returns stretch, position and count of the keys whose
        count now exceeds ``threshold``; the arrays are valid until the next call. A key is not returned again before
        `age`.
        """
        if self._asked.size < most_rows:
            self._asked = np.zeros(most_rows, np.int32)
        self._counted += page.size
        bits = self._bits if self._counted * _SPARSE < self._counters.size else 0
        found = count_hot_rows(
            words, starts, page, row,
            self._counters, bits, threshold, self._asked, self._page, self._row, self._count,
        )  # fmt: skip
        return self._page[:found], self._row[:found], self._count[:found]

    def age(self) -> None:
        """Halve all counts."""
        self._counters >>= 1
        self._counted //= 2


_MOST_ROWS = 1 << 12  # copied at once
_NOTE_BYTES = 8 + 4 + 4  # a row's code, its key's count, and the number of the note
_GUESSED_BYTES = 32  # expected of a string or nested value


class HotKeys:
    """Counts the pairs found by the wrapped join, and collects the rows of the most frequent keys for the cache.

    `KeyCounters` with ``bits`` counts the keys. When the count of a key exceeds ``threshold``, all its rows are copied
    from the current page; a key that spans pages is left out. The rows wait in at most ``nbytes`` until `take`, which
    needs as much again.
    """

    def __init__(self, columns: tuple[ColumnLayout, ...], layout: PageLayout, *, nbytes: int, bits: int) -> None:
        self.threshold = 2
        self.full = False  # True if no more rows fit before `take`
        self._columns = columns
        self._layout = layout
        self._counters = KeyCounters(bits)
        varying = sum(column.kind in ("binary", "arrow") for column in columns)
        self._fixed_bytes = _NOTE_BYTES + sum(column.fixed_bytes for column in columns)
        self._most_rows = max(nbytes // (self._fixed_bytes + _GUESSED_BYTES * varying), 1)
        self._most_bytes = nbytes if varying else None
        self._gatherer = RowGatherer(columns, self._most_rows)
        self._codes = np.empty(self._most_rows, np.int64)
        self._asked, self._noted = (np.empty(self._most_rows, np.int32) for _ in range(2))
        self._notes = 0  # since `take`
        self._place = tuple(np.empty(min(self._most_rows, _MOST_ROWS), np.int32) for _ in range(3))
        self._varying_bytes = 0
        self._table: PageTable | None = None
        self._page_rows = 0  # of the page with the most rows

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the waiting rows."""
        return self._gatherer.rows * self._fixed_bytes + self._varying_bytes

    def observe(self, table: PageTable, run: PageRun, page: Int32s, row: Int32s) -> bool:
        """Count all pairs of a stream tuple and a row of a run with equal codes, and copy the rows of hot keys.

        Returns True if it found hot keys, or if no more rows fit before `take`.
        """
        if self.full:
            return True
        if table is not self._table:
            self._table, self._page_rows = table, int(table.rows.max(initial=0))
        page, row, count = self._counters.count(
            run.words, run.code_starts, page, row, most_rows=self._page_rows, threshold=self.threshold
        )
        if page.size:
            self._note(table, run, page, row, count)
        return bool(page.size)

    def _note(self, table: PageTable, run: PageRun, page: Int32s, row: Int32s, count: Int32s) -> None:
        begin = self._gatherer.rows
        all_page, all_row, key = (place[: self._most_rows - begin] for place in self._place)
        pages = run.words, run.code_starts, run.rows, run.pages, table.first_code, table.last_code
        rows, fit = rows_of_keys(*pages, page, row, all_page, all_row, key)
        self.full = not fit
        if self._most_bytes is not None:
            rows = self._fitting(run, all_page[:rows], all_row[:rows], key[:rows])
        if rows == 0:
            return
        all_page, all_row, here = all_page[:rows], all_row[:rows], slice(begin, begin + rows)
        self._codes[here] = run.words[run.code_starts[all_page] + all_row]
        self._asked[here] = count[key[:rows]]
        self._noted[here] = self._notes
        self._notes += 1
        self._gatherer.append(run, all_page, all_row)

    def _fitting(self, run: PageRun, page: Int32s, row: Int32s, key: Int32s) -> int:
        """Return the number of rows that fit in the bytes left for values of varying size: all of a key or none."""
        assert self._most_bytes is not None
        varying = np.cumsum(row_bytes(run, self._columns, page, row) + _NOTE_BYTES - self._fixed_bytes)
        left = self._most_bytes - self._most_rows * self._fixed_bytes - self._varying_bytes
        rows = int(np.searchsorted(varying, left, "right"))
        if rows < key.size:
            self.full = True
            while rows and key[rows] == key[rows - 1]:
                rows -= 1
        self._varying_bytes += int(varying[rows - 1]) if rows else 0
        return rows

    def take(self, cache: TupleCache) -> CacheRows | None:
        """Return the waiting rows by ascending code, without duplicates and keys that ``cache`` holds; None if none."""
        rows = self._gatherer.rows
        if rows == 0:
            return None
        columns = self._gatherer.finish()
        self._clear()
        batch = pa.RecordBatch.from_arrays([pa.array(self._codes[:rows]), *columns], schema=self._layout.schema)
        order = np.lexsort((-self._noted[:rows], self._codes[:rows]))
        codes, noted = self._codes[order], self._noted[order]
        first = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
        latest = np.repeat(noted[first], np.diff(np.append(first, rows)))
        chosen = order[(noted == latest) & ~cache.holds(codes)]  # a key noted twice keeps its latest note
        return CacheRows(batch.take(pa.array(chosen)), self._asked[chosen]) if chosen.size else None

    def forget(self) -> None:
        """Drop the waiting rows, which may be outdated in a new version of R."""
        if self._gatherer.rows:
            self._gatherer.finish()
        self._clear()

    def _clear(self) -> None:
        self.full, self._varying_bytes, self._notes = False, 0, 0

    def age(self) -> None:
        """Halve all counts."""
        self._counters.age()
