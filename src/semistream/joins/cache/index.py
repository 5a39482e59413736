"""CacheIndex: the hash index of a tuple cache by key code, with its probe buffers and the size of its pages."""

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
_LOAD = 0.6  # largest load of the table: above it, chains grow fast
_MOST_PLACE_BITS = 31
_NONE_IMPOSSIBLE = np.empty(0, np.bool_)


class ProbeRoom:
    """Reusable buffers of a probe: positions of up to ``missed`` missed tuples, and ``pairs`` found at a time."""

    def __init__(self, missed: int, pairs: int) -> None:
        self.found = np.empty(pairs, np.int32), np.empty(pairs, np.int32)
        self.ordered = np.empty(pairs, np.int64), np.empty(pairs, np.int32), np.empty(pairs, np.int32)
        self.every_missed = np.empty(missed, np.int32)
        self.missed_rows = 0

    @staticmethod
    def memory_bytes(missed: int, pairs: int) -> int:
        """Return the bytes of the buffers."""
        return 4 * missed + 24 * pairs

    @property
    def missed(self) -> Int32s:
        """Positions of the tuples missed since `clear`, in the order of the look-ups."""
        return self.every_missed[: self.missed_rows]

    def clear(self) -> None:
        """Forget the missed tuples."""
        self.missed_rows = 0


class CacheIndex:
    """A hash table of ``2**bits`` entries over at most ``pages`` pages of ``page_rows`` rows; changes refill it."""

    def __init__(self, bits: int, pages: int, page_rows: int) -> None:
        self._bits = max(bits, 1)
        self._row_bits = self._row_bits_of(page_rows)
        self._place_bits = ((pages << self._row_bits) + 1).bit_length()
        self._table = np.zeros(1 << self._bits, np.uint32)
        self._counts = np.empty(pages + 1, np.int64)
        self._run: PageRun | None = None
        self.scattered = False  # True if the rows of some code are not adjacent in one page

    @staticmethod
    def _row_bits_of(page_rows: int) -> int:
        return max(page_rows - 1, 1).bit_length()

    @classmethod
    def most_pages(cls, page_rows: int) -> int:
        """Return the number of pages of ``page_rows`` rows that an entry can address."""
        return (1 << (_MOST_PLACE_BITS - 1)) >> cls._row_bits_of(page_rows)

    @staticmethod
    def most_rows(bits: int) -> int:
        """Return the number of rows that a table of ``2**bits`` entries takes."""
        return int(_LOAD * (1 << bits))

    def fill(self, run: PageRun, first_rows: Int64s, frequency: Int32s) -> None:
        """Index the rows of a run, except those with a negative frequency."""
        self._run, self._first_rows, self._frequency = run, first_rows, frequency
        self._table[:] = 0
        self.scattered = bool(run.pages.size) and index_rows(
            run.words, run.code_starts, run.rows, first_rows, frequency, self._table, *self._shape
        )

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self._bits, self._row_bits, self._place_bits

    def holds(self, codes: Int64s) -> Bools:
        """Return a flag per code: True if it has rows."""
        out = np.zeros(codes.size, np.bool_)
        run = self._run
        if run is not None and run.pages.size:
            find_codes(codes, run.words, run.code_starts, self._table, *self._shape, out)
        return out

    def probe(
        self, codes: Int64s, possible: Bools | None, room: ProbeRoom, begin: int = 0
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Yield pairs of a position in ``codes`` and a (page, row), ordered by page, in chunks that fit ``room``.

        Positions have ``begin`` added. Codes not flagged ``possible`` are skipped and count as missed. Each pair adds
        one to the frequency of its row. After the last pair, ``room.missed`` also has the positions without a row.
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
_FRAMES = 64  # frames that a cache should have before they grow larger
_COPIES = 4  # copies of a page's rows that exist while pages are written
_LEAST_VALUE = 8  # fewest bytes that a string or nested value counts for, which bounds the rows of a page


@dataclass(frozen=True)
class CacheShape:
    """Sizes of a tuple cache: ``frames`` of ``frame_bytes`` each, and an index of ``2**index_bits`` entries.

    A frame holds a page in ``layout``, of which ``room`` bytes are for rows. A row takes at least ``least_row`` bytes,
    so a page has at most ``page_rows``.
    """

    layout: PageLayout
    frame_bytes: int
    room: int
    least_row: int
    index_bits: int
    frames: int

    @classmethod
    def of(cls, columns: Sequence[ColumnLayout], nbytes: int) -> CacheShape:
        """Return the largest cache of these columns of R that fits in ``nbytes``."""
        layout, overhead = _laid_out(tuple(column.type for column in columns))
        frame = max(min(_MOST_FRAME, nbytes // _FRAMES // _LEAST_FRAME * _LEAST_FRAME), _LEAST_FRAME)
        room = frame - overhead
        least_row = 8 + sum(
            column.width + (_LEAST_VALUE if column.kind in ("binary", "arrow") else 0) for column in columns
        )
        if room < least_row:
            return cls(layout, frame, room, least_row, index_bits=1, frames=0)
        left, page_rows = nbytes - _COPIES * frame, _page_rows(room, least_row)
        page_bytes = frame + 64 + 8 * layout.num_buffers + 4 * page_rows  # with buffer positions and frequencies

        def frames(bits: int) -> int:
            fitting = max(left - (ENTRY_BYTES << bits), 0) // page_bytes
            return min(fitting, CacheIndex.most_rows(bits) // page_rows, CacheIndex.most_pages(page_rows))

        bits = max(range(1, max(left, 1).bit_length() + 1), key=frames)
        return cls(layout, frame, room, least_row, index_bits=bits, frames=frames(bits))

    @property
    def page_rows(self) -> int:
        """Most rows of a page."""
        return _page_rows(self.room, self.least_row)

    def filled(self, row_bytes: int) -> int:
        """Return the bytes of a page that whole rows of ``row_bytes`` fill."""
        return max(self.room - self.room % row_bytes, row_bytes) if row_bytes else self.room

    def rows(self, row_bytes: int) -> float:
        """Return the number of rows of ``row_bytes`` that fit in the cache."""
        return self.frames * self.filled(row_bytes) / row_bytes


@lru_cache(maxsize=64)
def _laid_out(types: tuple[pa.DataType, ...]) -> tuple[PageLayout, int]:
    """Return the layout of pages with columns of these types, and the overhead bytes of a page.

    Memoised, because a tuner asks for caches of many sizes.
    """
    layout = PageLayout.with_codes(pa.schema([pa.field(str(i), type_) for i, type_ in enumerate(types)]))
    return layout, frame_bytes(layout)


def _page_rows(room: int, least_row: int) -> int:
    return max(room // least_row, 1)
