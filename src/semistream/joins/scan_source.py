"""What a scan of R takes in memory, and how it is opened: for clustered pages and for plain Parquet."""

from __future__ import annotations

from typing import Protocol

from semistream.errors import InvalidArgument
from semistream.joins.cyclic_scan import CyclicScan
from semistream.joins.parquet_scan import ParquetScan
from semistream.relation import AnyRelation, Disk, DiskCounts, PageRun, ParquetRelation, Relation
from semistream.relation.null_pages import WORKING_BYTES, NullKeyPages
from semistream.relation.parquet_reader import COPIES

_READ_AHEAD = 2  # runs: the disk goes on while the consumer takes a batch of results
BUFFERS = _READ_AHEAD + 1


class Scan(Protocol):
    """A cyclic scan, in page counters that never wrap; see `CyclicScan`."""

    position: int
    asked: int
    num_pages: int

    @property
    def can_ask(self) -> bool:
        """Whether another run may be read ahead."""

    def count_runs(self, run_pages: int) -> int:
        """Runs of at most ``run_pages`` that make one scan."""

    def ask(self, until: int) -> None:
        """Start to read the next run, up to ``until`` at most."""

    def take(self, until: int) -> PageRun:
        """What is at ``position``, up to ``until`` at most; valid until `advance`."""

    def advance(self, pages: int) -> None:
        """Say that what was taken, so many pages, is joined."""

    def close(self) -> None:
        """End the reader's thread and close files."""


class ScanSource(Protocol):
    """The memory of a scan: of R's index, of decoding, of so many ``buffers`` for runs (of ``run_pages``, if that is
    fixed), of pages that are not in R's page table.
    """

    index_bytes: int
    decoding_bytes: int
    buffers: int
    run_pages: int | None
    largest_page: int

    def open(self, run_bytes: int, disk: Disk) -> Scan:
        """The scan, with runs of at most ``run_bytes``."""


class PageScanSource:
    """Scans of clustered pages, with the rows of a null key if there are ``null_counts`` to count them in."""

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
        """The scan, with runs of at most ``run_bytes``."""
        reader = self._relation.reader(run_bytes=run_bytes, disk=disk, buffers=BUFFERS)
        return CyclicScan(self._relation.table, reader, self._nulls)


class ParquetScanSource:
    """Scans of plain Parquet: each run is a page."""

    def __init__(self, relation: ParquetRelation, run_pages: int | None) -> None:
        if run_pages is not None:
            raise InvalidArgument(
                f"pages_per_step is {run_pages}, but Parquet is joined page by page. "
                "ParquetRelation.open(path, page_bytes=...) says how large pages are."
            )
        self._relation = relation
        self.index_bytes = relation.index_bytes
        self.decoding_bytes = relation.decoding_bytes
        self.buffers = BUFFERS + COPIES
        self.run_pages: int | None = 1
        self.largest_page = 0

    def open(self, run_bytes: int, disk: Disk) -> ParquetScan:
        """The scan."""
        del run_bytes  # a page's
        return ParquetScan(self._relation.num_pages, self._relation.reader(disk=disk, buffers=BUFFERS))


def scan_source(relation: AnyRelation, run_pages: int | None, null_counts: DiskCounts | None) -> ScanSource:
    """Where scans of a relation come from. If rows with a null key can match, they are read too, and what that takes is
    added to ``null_counts``: no disk counts it.
    """
    if isinstance(relation, ParquetRelation):
        return ParquetScanSource(relation, run_pages)
    return PageScanSource(relation, run_pages, null_counts)
