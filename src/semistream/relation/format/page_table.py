"""The page table: location, code range and checksums of each page of R.

In memory it is the sparse index of R, in the role of the inner nodes of the B+tree in SSIJ section III.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import CorruptRelation
from semistream.kernels.array_types import Bools, Int32s, Int64s, UInt64s

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
_OF_SEGMENT = ("offset", "nbytes", "checksum")

Chosen = npt.NDArray[np.intp] | slice


@dataclass(frozen=True)
class SegmentTable:
    """Locations of the pages' segments of one column group in the group's files.

    ``verified`` marks the segments whose checksum was already verified; readers keep it up to date.
    """

    offset: Int64s
    nbytes: Int64s
    checksum: UInt64s
    verified: Bools

    @classmethod
    def unverified(cls, offset: Int64s, nbytes: Int64s, checksum: UInt64s) -> SegmentTable:
        """Create a table of unverified segments."""
        return cls(offset, nbytes, checksum, np.zeros(offset.size, np.bool_))

    def take(self, pages: Chosen) -> SegmentTable:
        """Return the segments of some pages."""
        return SegmentTable(*(getattr(self, f.name)[pages] for f in fields(self)))


@dataclass(frozen=True)
class PageTable:
    """One row per page, in ascending order of codes. ``file`` indexes the manifest's files of each column group.

    A page has a segment in each group. All groups are written together, page by page, so pages adjacent in one group's
    file are adjacent in all. Distances between pages can therefore be computed from `offset` and `nbytes`, the sums
    over the groups, as if one file held each page in one piece.
    """

    file: Int32s
    rows: Int32s
    first_code: Int64s
    last_code: Int64s
    segments: tuple[SegmentTable, ...]

    def __len__(self) -> int:
        return self.file.size

    @cached_property
    def offset(self) -> Int64s:
        """Offset of each page, as if one file held all its segments in one piece."""
        return self._summed("offset")

    @cached_property
    def nbytes(self) -> Int64s:
        """Total bytes of each page's segments."""
        return self._summed("nbytes")

    def _summed(self, name: str) -> Int64s:
        parts: list[Int64s] = [getattr(segment, name) for segment in self.segments]
        total: Int64s = parts[0] if len(parts) == 1 else np.sum(parts, axis=0)
        return total

    @classmethod
    def empty(cls) -> PageTable:
        """Create the table of a relation without rows."""
        return cls.from_arrow(_SCHEMA.empty_table(), [0])

    @classmethod
    def read(cls, path: Path, groups: Sequence[int], files: Sequence[Sequence[int]]) -> PageTable:
        """Read the table from its file; ``files`` has the bytes of the data files of each of the column groups."""
        try:
            with pa.OSFile(str(path)) as source:
                table = cls.from_arrow(pa.ipc.open_file(source).read_all(), groups)
            table._require_inside(files)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise CorruptRelation(f"{path} is not a page table ({error}). Restore it from a copy.") from error
        return table

    @classmethod
    def from_arrow(cls, table: pa.Table, groups: Sequence[int]) -> PageTable:
        """Create the table from the content of its file, with the segments of some column groups."""

        def read(name: str, group: int = 0) -> npt.NDArray[Any]:
            column = table.column(_name(name, group)).cast(_SCHEMA.field(name).type)
            return np.array(column.to_numpy())  # a copy, so that no column keeps the memory of all alive

        segments = [SegmentTable.unverified(*(read(name, group) for name in _OF_SEGMENT)) for group in groups]
        return cls(**{name: read(name) for name in _BY_PAGE}, segments=tuple(segments))

    def _require_inside(self, files: Sequence[Sequence[int]]) -> None:
        """Raise `ValueError` unless all pages lie in their files, whose bytes are given by column group."""
        if len(self) == 0:
            return
        least = min(int(self.rows.min()), int(self.file.min()), *(int(s.offset.min()) for s in self.segments))
        if least < 0 or any(int(segment.nbytes.min()) < 0 for segment in self.segments):
            raise ValueError("a page has a negative position or size")
        if bool((self.last_code < self.first_code).any() or (self.first_code[1:] < self.last_code[:-1]).any()):
            raise ValueError("the pages are not in order")
        for segment, nbytes in zip(self.segments, files, strict=True):
            if int(self.file.max()) >= len(nbytes):
                raise ValueError(f"a page lies in file {int(self.file.max())} of {len(nbytes)}")
            room = np.array(nbytes, np.int64)[self.file]
            if bool(((segment.offset > room) | (segment.nbytes > room - segment.offset)).any()):
                raise ValueError("a page lies beyond the end of its file")

    def to_arrow(self) -> pa.Table:
        """Convert the table to the form stored in its file."""
        schema = _schema_of(len(self.segments))
        columns = {name: getattr(self, name) for name in _BY_PAGE}
        for group, segment in enumerate(self.segments):
            columns |= {_name(name, group): getattr(segment, name) for name in _OF_SEGMENT}
        return pa.table([columns[name] for name in schema.names], schema=schema)

    @classmethod
    def concat(cls, tables: Sequence[PageTable]) -> PageTable:
        """Concatenate tables with the same column groups, in the given order."""
        segments = [
            SegmentTable(*(np.concatenate([getattr(s, f.name) for s in together]) for f in fields(SegmentTable)))
            for together in zip(*(table.segments for table in tables), strict=True)
        ]
        by_page = {name: np.concatenate([getattr(table, name) for table in tables]) for name in _BY_PAGE}
        return cls(**by_page, segments=tuple(segments))

    def take(self, pages: Chosen) -> PageTable:
        """Return the table of some pages."""
        segments = tuple(segment.take(pages) for segment in self.segments)
        return PageTable(**{name: getattr(self, name)[pages] for name in _BY_PAGE}, segments=segments)

    def with_files(self, file: Int32s) -> PageTable:
        """Return the same pages with new file numbers."""
        return replace(self, file=file)

    def with_segments(self, chosen: Sequence[int]) -> PageTable:
        """Return the same pages with only some of their segments."""
        return replace(self, segments=tuple(self.segments[i] for i in chosen))

    @property
    def memory_bytes(self) -> int:
        """Bytes of this table in memory."""
        held = [getattr(self, name) for name in _BY_PAGE]
        held += [getattr(segment, f.name) for segment in self.segments for f in fields(segment)]
        if len(self.segments) > 1:
            held += [self.offset, self.nbytes]
        return sum(array.nbytes for array in held)

    def pages_holding(self, codes: Int64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the pages that may hold any of the ascending ``codes``."""
        begin = np.searchsorted(codes, self.first_code, "left")
        end = np.searchsorted(codes, self.last_code, "right")
        return end > begin

    def cut_runs(self, pages: npt.NDArray[np.intp], run_bytes: int, run_pages: int | None = None) -> Int64s:
        """Cut ``pages`` into runs; return the first position of each run, followed by the end.

        A run is contiguous in one file and holds at most ``run_bytes`` (and ``run_pages``), but at least one page.
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
        """Return the end positions, in ``pages``, of the longest stretches of pages contiguous in one file."""
        file, offset, nbytes = self.file[pages], self.offset[pages], self.nbytes[pages]
        breaks = (file[1:] != file[:-1]) | (offset[1:] != offset[:-1] + nbytes[:-1])
        return np.append(np.flatnonzero(breaks) + 1, pages.size)

    def fitting(self, pages: npt.NDArray[np.intp], run_bytes: int) -> int:
        """Return the number of the contiguous ``pages`` that fit in one run of ``run_bytes``: at least one."""
        ends = self.offset[pages] + self.nbytes[pages] - self.offset[pages[0]]
        return max(int(np.searchsorted(ends, run_bytes, "right")), 1)

    def scan_order(self) -> npt.NDArray[np.intp]:
        """Return the pages in disk order."""
        return np.lexsort((self.offset, self.file))


_BY_PAGE = tuple(f.name for f in fields(PageTable) if f.name != "segments")


def _name(name: str, group: int) -> str:
    """Return the name of a group's column in the table's file; the first group uses the plain name."""
    return name if group == 0 else f"{name}_of_{group}"


def _schema_of(groups: int) -> pa.Schema:
    more = [_SCHEMA.field(name).with_name(_name(name, group)) for group in range(1, groups) for name in _OF_SEGMENT]
    return pa.schema([*_SCHEMA, *more])
