"""CacheIndex: finds the rows of a tuple cache by key code; ProbeRoom: what that takes for a chunk of tuples.

CacheShape: how many rows of R a tuple cache has room for, and in what pages it keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from semistream.joins.cache.kernels import find_codes, index_rows, order_by_page, probe_rows
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout, PageLayout
from semistream.relation.write.page_writer import frame_bytes

ENTRY_BYTES = 4
_LOAD = 0.6  # of the table, at most: the chains of a hash table grow fast from there
_MOST_PLACE_BITS = 31
_NONE_IMPOSSIBLE = np.empty(0, np.bool_)


class ProbeRoom:
    """Arrays to look up tuples: for up to ``missed`` of them in all, and for ``pairs`` that are found at a time."""

    def __init__(self, missed: int, pairs: int) -> None:
        self.found = np.empty(pairs, np.int32), np.empty(pairs, np.int32)
        self.ordered = np.empty(pairs, np.int64), np.empty(pairs, np.int32), np.empty(pairs, np.int32)
        self.every_missed = np.empty(missed, np.int32)
        self.missed_rows = 0

    @staticmethod
    def memory_bytes(missed: int, pairs: int) -> int:
        """Bytes it takes."""
        return 4 * missed + 24 * pairs

    @property
    def missed(self) -> Int32s:
        """The tuples that were missed since `clear`, in the order in which they were looked up."""
        return self.every_missed[: self.missed_rows]

    def clear(self) -> None:
        """Forget the tuples that were missed."""
        self.missed_rows = 0


class CacheIndex:
    """A table of ``2**bits`` entries over up to ``pages`` of up to ``page_rows``; it is filled anew as pages change."""

    def __init__(self, bits: int, pages: int, page_rows: int) -> None:
        self._bits = max(bits, 1)
        self._row_bits = self._row_bits_of(page_rows)
        self._place_bits = ((pages << self._row_bits) + 1).bit_length()
        self._table = np.zeros(1 << self._bits, np.uint32)
        self._counts = np.empty(pages + 1, np.int64)
        self._run: PageRun | None = None
        self.scattered = False  # whether a code has rows that do not follow each other in one page

    @staticmethod
    def _row_bits_of(page_rows: int) -> int:
        return max(page_rows - 1, 1).bit_length()

    @classmethod
    def most_pages(cls, page_rows: int) -> int:
        """How many pages of so many rows can be told apart."""
        return (1 << (_MOST_PLACE_BITS - 1)) >> cls._row_bits_of(page_rows)

    @staticmethod
    def most_rows(bits: int) -> int:
        """How many rows a table takes."""
        return int(_LOAD * (1 << bits))

    def fill(self, run: PageRun, first_rows: Int64s, frequency: Int32s) -> None:
        """Let the index be that of a run, without rows whose frequency is below zero."""
        self._run, self._first_rows, self._frequency = run, first_rows, frequency
        self._table[:] = 0
        self.scattered = bool(run.pages.size) and index_rows(
            run.words, run.code_starts, run.rows, first_rows, frequency, self._table, *self._shape
        )

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self._bits, self._row_bits, self._place_bits

    def holds(self, codes: Int64s) -> Bools:
        """Which codes have rows."""
        out = np.zeros(codes.size, np.bool_)
        run = self._run
        if run is not None and run.pages.size:
            find_codes(codes, run.words, run.code_starts, self._table, *self._shape, out)
        return out

    def probe(
        self, codes: Int64s, possible: Bools | None, room: ProbeRoom, begin: int = 0
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Pairs of a position in ``codes`` and a row, page by page, as many at a time as ``room`` has room for.

        Positions are given with ``begin`` added. Only codes that are ``possible`` are looked for. Each pair adds one to
        its row's frequency. When all pairs have been given, ``room.missed`` has also the positions that have none.
        """
        run = self._run
        if run is None or run.pages.size == 0:
            room.every_missed[room.missed_rows : room.missed_rows + codes.size] = np.arange(begin, begin + codes.size)
            room.missed_rows += codes.size
            return
        cursor = np.array([0, -1, -1, room.missed_rows])
        rows = run.words, run.code_starts, run.rows, self._first_rows, self._frequency
        possible = _NONE_IMPOSSIBLE if possible is None else possible
        position, page, row = room.ordered
        counts = self._counts[: run.pages.size + 1]
        while cursor[0] < codes.size:
            found = probe_rows(
                codes, possible, *rows, self._table, *self._shape, begin, cursor, *room.found, room.every_missed
            )
            if found:
                at, place = room.found
                order_by_page(at[:found], place[:found], self._row_bits, begin, counts, position, page, row)
                yield position[:found], page[:found], row[:found]
        room.missed_rows = int(cursor[3])


_MOST_FRAME, _LEAST_FRAME = 1 << 16, 1 << 12
_FRAMES = 64  # that a cache should have before they grow larger
_COPIES = 4  # of a page's rows that there are while pages are written
_LEAST_VALUE = 8  # bytes that a string or nested value counts for at least: it bounds the rows of a page


@dataclass(frozen=True)
class CacheShape:
    """``frames`` of ``frame_bytes`` for pages of rows in ``layout``, with ``room`` for the rows themselves, and an
    index of ``2**index_bits`` entries. A row takes no less than ``least_row`` bytes, so a page has up to ``page_rows``.
    """

    layout: PageLayout
    frame_bytes: int
    room: int
    least_row: int
    index_bits: int
    frames: int

    @classmethod
    def of(cls, columns: Sequence[ColumnLayout], nbytes: int) -> CacheShape:
        """What ``nbytes`` are enough for, if these columns of R are cached."""
        layout, overhead = _laid_out(tuple(column.type for column in columns))
        frame = max(min(_MOST_FRAME, nbytes // _FRAMES // _LEAST_FRAME * _LEAST_FRAME), _LEAST_FRAME)
        room = frame - overhead
        least_row = 8 + sum(
            column.width + (_LEAST_VALUE if column.kind in ("binary", "arrow") else 0) for column in columns
        )
        if room < least_row:
            return cls(layout, frame, room, least_row, index_bits=1, frames=0)
        left, page_rows = nbytes - _COPIES * frame, _page_rows(room, least_row)
        page_bytes = frame + 64 + 8 * layout.num_buffers + 4 * page_rows  # where it is, and frequencies

        def frames(bits: int) -> int:
            fitting = max(left - (ENTRY_BYTES << bits), 0) // page_bytes
            return min(fitting, CacheIndex.most_rows(bits) // page_rows, CacheIndex.most_pages(page_rows))

        bits = max(range(1, max(left, 1).bit_length() + 1), key=frames)
        return cls(layout, frame, room, least_row, index_bits=bits, frames=frames(bits))

    @property
    def page_rows(self) -> int:
        """Rows that a page can have."""
        return _page_rows(self.room, self.least_row)

    def filled(self, row_bytes: int) -> int:
        """Bytes of a page that rows of so many bytes fill: its room, but for what is no whole row."""
        return max(self.room - self.room % row_bytes, row_bytes) if row_bytes else self.room

    def rows(self, row_bytes: int) -> float:
        """Rows of so many bytes that there is room for."""
        return self.frames * self.filled(row_bytes) / row_bytes


@lru_cache(maxsize=64)
def _laid_out(types: tuple[pa.DataType, ...]) -> tuple[PageLayout, int]:
    """The layout of pages with columns of these types, and what a page takes besides its rows.

    It is kept, as a tuner asks for caches of many sizes.
    """
    layout = PageLayout.with_codes(pa.schema([pa.field(str(i), type_) for i, type_ in enumerate(types)]))
    return layout, frame_bytes(layout)


def _page_rows(room: int, least_row: int) -> int:
    return max(room // least_row, 1)
