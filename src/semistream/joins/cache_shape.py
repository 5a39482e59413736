"""CacheShape: how many rows of R a tuple cache has room for, and in what pages it keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from semistream.joins.cache_index import ENTRY_BYTES, CacheIndex
from semistream.relation.page_layout import ColumnLayout, PageLayout
from semistream.relation.page_writer import frame_bytes

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
