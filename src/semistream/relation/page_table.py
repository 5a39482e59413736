"""The page table: where each page of R is, which codes it holds, and its checksum.

In memory it is the sparse index of R; it plays the inner nodes of the B+tree in SSIJ section III.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.types import Int32s, Int64s, UInt64s

_SCHEMA = pa.schema(
    [
        pa.field("file", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("nbytes", pa.int64(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
        pa.field("first_code", pa.int64(), nullable=False),
        pa.field("last_code", pa.int64(), nullable=False),
        pa.field("checksum", pa.uint64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class PageTable:
    """One row per page, in ascending order of codes. ``file`` indexes the manifest's list of data files."""

    file: Int32s
    offset: Int64s
    nbytes: Int64s
    rows: Int32s
    first_code: Int64s
    last_code: Int64s
    checksum: UInt64s

    def __len__(self) -> int:
        return self.file.size

    @classmethod
    def empty(cls) -> PageTable:
        """The table of a relation without rows."""
        return cls.from_arrow(_SCHEMA.empty_table())

    @classmethod
    def from_arrow(cls, table: pa.Table) -> PageTable:
        """The table as read back from its file."""
        table = table.select(_SCHEMA.names).cast(_SCHEMA)
        return cls(*(column.to_numpy() for column in table.columns))

    def to_arrow(self) -> pa.Table:
        """The table as it is written to its file."""
        return pa.table([getattr(self, name) for name in _SCHEMA.names], schema=_SCHEMA)

    @classmethod
    def concat(cls, tables: Sequence[PageTable]) -> PageTable:
        """Tables of ascending ranges of codes, one behind the other."""
        return cls(*(np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(cls)))

    def take(self, pages: npt.NDArray[np.intp] | slice) -> PageTable:
        """The rows of some pages."""
        return PageTable(*(getattr(self, f.name)[pages] for f in fields(self)))

    def with_files(self, file: Int32s) -> PageTable:
        """The same pages with their files numbered anew."""
        return replace(self, file=file)

    @property
    def memory_bytes(self) -> int:
        """Bytes this table takes in memory."""
        return sum(getattr(self, f.name).nbytes for f in fields(self))

    def pages_holding(self, codes: Int64s) -> npt.NDArray[np.bool_]:
        """Which pages may hold any of the ascending ``codes``."""
        begin = np.searchsorted(codes, self.first_code, "left")
        end = np.searchsorted(codes, self.last_code, "right")
        return end > begin

    def cut_runs(self, pages: npt.NDArray[np.intp], run_bytes: int, run_pages: int | None = None) -> Int64s:
        """Cut ``pages`` into runs that one request can read: the first position of each, and the end.

        A run is contiguous in one file and holds at most ``run_bytes`` (and ``run_pages``), but at least a page.
        """
        if pages.size == 0:
            return np.zeros(1, np.int64)
        cuts = [np.zeros(1, np.int64)]
        begin = 0
        cumulative = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.nbytes[pages])])
        for end in self.extent_ends(pages):
            while begin < end:
                stop = int(np.searchsorted(cumulative, cumulative[begin] + run_bytes, "right")) - 1
                if run_pages is not None:
                    stop = min(stop, begin + run_pages)
                begin = min(max(stop, begin + 1), int(end))
                cuts.append(np.array([begin], np.int64))
        return np.concatenate(cuts)

    def extent_ends(self, pages: npt.NDArray[np.intp]) -> Int64s:
        """Where, in ``pages``, those end that lie one behind the other in one file; the last is the end of all."""
        file, offset, nbytes = self.file[pages], self.offset[pages], self.nbytes[pages]
        breaks = (file[1:] != file[:-1]) | (offset[1:] != offset[:-1] + nbytes[:-1])
        return np.append(np.flatnonzero(breaks) + 1, pages.size)

    def fitting(self, pages: npt.NDArray[np.intp], run_bytes: int) -> int:
        """How many of ``pages``, which lie one behind the other, one run of ``run_bytes`` takes: at least a page."""
        ends = self.offset[pages] + self.nbytes[pages] - self.offset[pages[0]]
        return max(int(np.searchsorted(ends, run_bytes, "right")), 1)

    def scan_order(self) -> npt.NDArray[np.intp]:
        """Pages in the order in which they lie on disk."""
        return np.lexsort((self.offset, self.file))
