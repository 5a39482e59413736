"""Cyclic scans of R: its pages in disk order, or its Parquet row groups in file order, over and over, read ahead.

A `ScanSource` knows the memory that a scan of R needs and opens it, for clustered pages and for plain Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from semistream.errors import InvalidArgument
from semistream.relation import (
    AnyRelation,
    Disk,
    DiskCounts,
    PageRun,
    ParquetReader,
    ParquetRelation,
    Relation,
    RunReader,
)
from semistream.relation.format.page_table import PageTable
from semistream.relation.null_keys import WORKING_BYTES, NullKeyPages
from semistream.relation.parquet.reader import COPIES


class CyclicScan:
    """A scan of R's pages in disk order that starts again at the end.

    Positions in the scan are page counters: pages since the operator was made, which never wrap. ``position`` is where
    the join stands, and ``asked`` the end of the pages requested. A run is the result of one request; the join takes it
    whole or in parts. ``nulls`` are pages of rows with a null key, which come after the others, one by one.
    """

    def __init__(self, table: PageTable, reader: RunReader, nulls: NullKeyPages | None = None) -> None:
        self._table = table
        self._nulls = nulls
        self._null_pages: Iterator[PageRun] = iter(())
        self.num_pages = len(table) + (nulls.count if nulls else 0)
        self.reader = reader
        self._order = table.scan_order()
        self._extent_ends = table.extent_ends(self._order)
        self._run: PageRun | None = None
        self._run_ends = 0
        self.position = 0
        self.asked = 0

    @staticmethod
    def memory_bytes(num_pages: int) -> int:
        """Return the bytes of the disk order of ``num_pages`` pages and of the ends of up to as many extents."""
        return num_pages * (8 + 8)

    @property
    def can_ask(self) -> bool:
        """True if a buffer is free for another run."""
        return self.reader.room > 0

    def count_runs(self, run_pages: int) -> int:
        """Return the number of runs of at most ``run_pages`` in one scan."""
        cuts = self._table.cut_runs(self._order, self.reader.run_bytes, run_pages)
        return cuts.size - 1 + self.num_pages - len(self._table)

    def ask(self, until: int) -> None:
        """Request the next run: up to ``until``, the end of contiguous pages, or a full buffer."""
        at = self.asked % self.num_pages
        if at >= len(self._table):
            self.asked += 1
            return
        extent_end = int(self._extent_ends[np.searchsorted(self._extent_ends, at, "right")])
        pages = self._order[at : min(extent_end, at + until - self.asked)]
        pages = pages[: self._table.fitting(pages, self.reader.run_bytes)]
        self.reader.ask(pages)
        self.asked += pages.size

    def take(self, until: int) -> PageRun:
        """Return the pages at ``position``, up to ``until`` or the end of their run; valid until `advance`."""
        if self._run is None:
            at = self.position % self.num_pages
            if at == len(self._table) and self._nulls:
                self._null_pages = self._nulls.read()
            self._run = self.reader.take() if at < len(self._table) else next(self._null_pages)
            self._run_ends = self.position + self._run.pages.size
        begin = self._run.pages.size - (self._run_ends - self.position)
        return self._run.part(begin, begin + min(until, self._run_ends) - self.position)

    def advance(self, pages: int) -> None:
        """Record that ``pages`` of the pages taken are joined; a finished run returns its buffer."""
        self.position += pages
        if self.position == self._run_ends:
            self._run = None
            self.reader.give_back()

    def close(self) -> None:
        """Stop the reader's thread and close the files."""
        self._run = None
        self._null_pages = iter(())
        self.reader.close()


class ParquetScan:
    """A scan of the pages of a `ParquetRelation`, like `CyclicScan` for a `Relation`.

    Positions are page counters too, but a page may come in several pieces: ``position`` advances when all are joined.
    """

    def __init__(self, num_pages: int, reader: ParquetReader) -> None:
        self.num_pages = num_pages
        self._reader = reader
        self._ends_page = False
        self.position = 0
        self.asked = 0

    @property
    def can_ask(self) -> bool:
        """True if another page may be read ahead."""
        return self._reader.room > 0

    def count_runs(self, run_pages: int) -> int:
        """Return the runs of one scan: one per page."""
        del run_pages
        return self.num_pages

    def ask(self, until: int) -> None:
        """Request the next page."""
        del until  # a page is the smallest request
        self._reader.ask(self.asked % self.num_pages)
        self.asked += 1

    def take(self, until: int) -> PageRun:
        """Return the next piece of the page at ``position``; valid until `advance`."""
        del until
        run, self._ends_page = self._reader.take()
        return run

    def advance(self, pages: int) -> None:
        """Record that the piece is joined."""
        self._reader.give_back()
        self.position += pages if self._ends_page else 0

    def close(self) -> None:
        """Stop the reader's thread and close the files."""
        self._reader.close()


_READ_AHEAD = 2  # runs, so that the disk continues while the consumer takes a batch of results
BUFFERS = _READ_AHEAD + 1


class Scan(Protocol):
    """A cyclic scan, in page counters that never wrap; see `CyclicScan`."""

    position: int
    asked: int
    num_pages: int

    @property
    def can_ask(self) -> bool:
        """True if another run may be read ahead."""

    def count_runs(self, run_pages: int) -> int:
        """Return the number of runs of at most ``run_pages`` in one scan."""

    def ask(self, until: int) -> None:
        """Request the next run, at most up to ``until``."""

    def take(self, until: int) -> PageRun:
        """Return the pages at ``position``, at most up to ``until``; valid until `advance`."""

    def advance(self, pages: int) -> None:
        """Record that the pages taken, ``pages`` of them, are joined."""

    def close(self) -> None:
        """Stop the reader's thread and close the files."""


class ScanSource(Protocol):
    """Opens scans of a relation, and knows their memory.

    A scan needs ``index_bytes`` for R's index, ``decoding_bytes`` for decoding, and ``buffers`` buffers for runs, of
    ``run_pages`` pages if that is fixed. ``largest_page`` bounds the bytes of pages not in R's page table.
    """

    index_bytes: int
    decoding_bytes: int
    buffers: int
    run_pages: int | None
    largest_page: int

    def open(self, run_bytes: int, disk: Disk) -> Scan:
        """Open a scan with runs of at most ``run_bytes``."""


class PageScanSource:
    """Source of scans of clustered pages; with ``null_counts`` they read and count the rows with a null key too."""

    def __init__(self, relation: Relation, run_pages: int | None, null_counts: DiskCounts | None) -> None:
        self._relation = relation
        scans_nulls = null_counts is not None and relation.null_key_rows
        self._nulls = NullKeyPages(relation, null_counts) if scans_nulls else None
        pages = relation.num_pages
        self.index_bytes = relation.table.memory_bytes + CyclicScan.memory_bytes(pages)
        self.index_bytes += WORKING_BYTES if self._nulls else 0
        self.decoding_bytes = 0
        self.buffers = BUFFERS + (2 if self._nulls else 0)  # a page of null keys is copied twice
        self.run_pages = run_pages
        self.largest_page = self._nulls.largest if self._nulls else 0

    def open(self, run_bytes: int, disk: Disk) -> CyclicScan:
        """Open a scan with runs of at most ``run_bytes``."""
        reader = self._relation.reader(run_bytes=run_bytes, disk=disk, buffers=BUFFERS)
        return CyclicScan(self._relation.table, reader, self._nulls)


class ParquetScanSource:
    """Source of scans of plain Parquet, in which each run is a page."""

    def __init__(self, relation: ParquetRelation, run_pages: int | None) -> None:
        if run_pages is not None:
            raise InvalidArgument(
                f"pages_per_step is {run_pages}, but Parquet is joined page by page. "
                "Set the size of a page with ParquetRelation.open(path, page_bytes=...)."
            )
        self._relation = relation
        self.index_bytes = relation.index_bytes
        self.decoding_bytes = relation.decoding_bytes
        self.buffers = BUFFERS + COPIES
        self.run_pages: int | None = 1
        self.largest_page = 0

    def open(self, run_bytes: int, disk: Disk) -> ParquetScan:
        """Open a scan."""
        del run_bytes  # a run is a page
        return ParquetScan(self._relation.num_pages, self._relation.reader(disk=disk, buffers=BUFFERS))


def scan_source(relation: AnyRelation, run_pages: int | None, null_counts: DiskCounts | None) -> ScanSource:
    """Return the source of scans for a relation.

    If rows with a null key can match, give ``null_counts``: the scans then read these rows too, and count the reads
    there, as no disk does.
    """
    if isinstance(relation, ParquetRelation):
        return ParquetScanSource(relation, run_pages)
    return PageScanSource(relation, run_pages, null_counts)
