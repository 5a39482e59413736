"""The cyclic scan of R where it is plain Parquet: row groups in the order of the files, over and over."""

from __future__ import annotations

from semistream.relation import PageRun, ParquetReader


class ParquetScan:
    """Gives the pages of a `ParquetRelation` as `CyclicScan` gives those of a `Relation`.

    Places in the scan are page counters too, but a page may come in several pieces: ``position`` stays where it is
    until all are joined.
    """

    def __init__(self, num_pages: int, reader: ParquetReader) -> None:
        self.num_pages = num_pages
        self._reader = reader
        self._ends_page = False
        self.position = 0
        self.asked = 0

    @property
    def can_ask(self) -> bool:
        """Whether another page may be read ahead."""
        return self._reader.room > 0

    def count_runs(self, run_pages: int) -> int:
        """Runs of one scan: each page is one."""
        del run_pages
        return self.num_pages

    def ask(self, until: int) -> None:
        """Start to read the next page."""
        del until  # a page is the least there is
        self._reader.ask(self.asked % self.num_pages)
        self.asked += 1

    def take(self, until: int) -> PageRun:
        """The next piece of the page at ``position``; valid until `advance`."""
        del until
        run, self._ends_page = self._reader.take()
        return run

    def advance(self, pages: int) -> None:
        """Say that the piece is joined."""
        self._reader.give_back()
        self.position += pages if self._ends_page else 0

    def close(self) -> None:
        """End the reader's thread and close files."""
        self._reader.close()
