"""Reads runs of pages, checks them, and reads ahead in the background while the caller joins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.kernels.types import Bools, Bytes
from semistream.kernels.xxhash64 import hash_ranges
from semistream.relation.disk import Disk, ReadRequest, allocate_buffer, buffer_bytes
from semistream.relation.disk_costs import DiskCosts
from semistream.relation.page_layout import PageLayout
from semistream.relation.page_run import PageRun
from semistream.relation.page_table import PageTable
from semistream.relation.read_lane import ReadLane
from semistream.relation.read_plan import Pages, PageSequence

T = TypeVar("T")


class RunReader:
    """Gives runs of pages in the order asked for, with ``buffers - 1`` of them read ahead by ``threads``.

    ``verified`` says which pages need no check of their checksum any more, and is kept up to date. Only what was asked
    for is read, so that the counts of the disk are the same every time. Errors of the thread are
    raised where the run would have been taken.
    """

    def __init__(
        self,
        table: PageTable,
        layout: PageLayout,
        files: list[Path],
        disk: Disk,
        *,
        run_bytes: int,
        buffers: int = 2,
        threads: int = 1,
        verified: Bools | None = None,
    ) -> None:
        if buffers < 1:
            raise InvalidArgument(f"buffers is {buffers}; a reader needs at least 1.")
        self._table = table
        self._layout = layout
        self._files = files
        self._disk = disk
        self._run_bytes = run_bytes
        self._free: deque[Bytes] = deque(allocate_buffer(buffer_bytes(run_bytes)) for _ in range(buffers))
        self._pending: deque[tuple[Future[PageRun] | _LaneRun, Bytes, int]] = deque()  # and the pages of the run
        self._taken: Bytes | None = None
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._in_lanes = buffers > 1 and ReadLane.supported()
        self._lanes: list[ReadLane] = []
        self._idle: list[ReadLane] = []
        self._verified = np.zeros(len(table), np.bool_) if verified is None else verified

    @staticmethod
    def memory_bytes(run_bytes: int, buffers: int = 2) -> int:
        """Bytes that the buffers of a reader take."""
        return buffers * buffer_bytes(run_bytes)

    @property
    def run_bytes(self) -> int:
        """The longest run that can be asked for."""
        return self._run_bytes

    @property
    def idle(self) -> bool:
        """Whether no buffer is in use."""
        return not self._pending and self._taken is None

    @property
    def resized(self) -> bool:
        """Whether all buffers have the size of `run_bytes`: those of runs asked for before `resize` keep theirs."""
        held = [*self._free, *(buffer for _, buffer, _ in self._pending)]
        if self._taken is not None:
            held.append(self._taken)
        return all(buffer.size == buffer_bytes(self._run_bytes) for buffer in held)

    def resize(self, run_bytes: int) -> None:
        """Take runs of up to ``run_bytes`` from now on. Buffers in use are replaced when they are given back."""
        self._run_bytes = run_bytes
        free, self._free = len(self._free), deque()  # the old ones are let go before there are new ones
        self._free.extend(allocate_buffer(buffer_bytes(run_bytes)) for _ in range(free))

    @property
    def room(self) -> int:
        """How many more runs can be asked for before one must be taken."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """Runs asked for and not taken yet."""
        return len(self._pending)

    @property
    def pages_waiting(self) -> int:
        """Pages of the runs asked for and not taken yet, without what is read between them."""
        return sum(pages for _, _, pages in self._pending)

    @property
    def costs(self) -> DiskCosts:
        """What plans take a request of the disk to cost."""
        return self._disk.costs

    def ask(self, run: Pages | PageSequence) -> None:
        """Start to read a run: pages that lie one behind the other in one file, or a sequence of a read plan.

        Of a sequence all that lies between its pages is read and counted by the disk, but only the pages it names are
        checked and given.
        """
        pages, span_pages = run if isinstance(run, PageSequence) else (run, run.size)
        span = self._span(pages)
        self._require_readable(pages, span_pages, span[1])
        file = self._files[int(self._table.file[pages[0]])]
        read = self._disk.request(file, *span, pages=span_pages)
        buffer = self._free.popleft()
        coming: Future[PageRun] | _LaneRun
        if self._in_lanes and read.plain and self._verified[pages].all():
            coming = _LaneRun(self, self._lane(), read, pages, buffer)
        else:
            coming = self.submit(self._read, read, file, pages, buffer)
        self._pending.append((coming, buffer, pages.size))

    def _lane(self) -> ReadLane:
        if not self._idle:
            self._idle.append(ReadLane())
            self._lanes.append(self._idle[0])
        return self._idle.pop()

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Do something else in the reader's threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="semistream-reader")
        return self._pool.submit(work, *arguments)

    def take(self) -> Any:
        """Wait for the oldest run asked for. Its buffer is the caller's until `give_back`."""
        future, buffer, _ = self._pending.popleft()
        self._taken = buffer
        return future.result()

    def give_back(self) -> None:
        """Say that the run taken last is no longer needed: its buffer can be read into again."""
        if self._taken is not None:
            buffer, self._taken = self._taken, None
            if buffer.size != buffer_bytes(self._run_bytes):
                del buffer  # before there is a new one
                buffer = allocate_buffer(buffer_bytes(self._run_bytes))
            self._free.append(buffer)

    def read_all(self, runs: Iterable[Pages | PageSequence]) -> Iterator[PageRun]:
        """Every run in order, such as a plan's, read ahead; each is valid until the next one is asked for."""
        for run in runs:
            if not self._free:
                yield self.take()
                self.give_back()
            self.ask(run)
        while self._pending:
            yield self.take()
            self.give_back()

    def _span(self, pages: Pages) -> tuple[int, int]:
        """Where a run starts in its file, and how many bytes it has there with all between its pages."""
        table, last = self._table, pages[-1]
        start = int(table.offset[pages[0]])
        return start, int(table.offset[last] + table.nbytes[last]) - start

    def _require_readable(self, pages: Pages, span_pages: int, nbytes: int) -> None:
        """Refuse what would be miscounted, or is larger than a buffer."""
        if span_pages == pages.size and nbytes != self._table.nbytes[pages].sum():
            raise InvalidArgument(
                f"the {pages.size} pages from {pages[0]} to {pages[-1]} do not lie one behind the other. Ask for runs "
                "of PageTable.cut_runs, or for the sequences of a read plan."
            )
        if buffer_bytes(nbytes) > buffer_bytes(self._run_bytes):
            raise InvalidArgument(
                f"the pages from {pages[0]} to {pages[-1]} span {nbytes} bytes, and the reader's runs have at most "
                f"{self._run_bytes}. Raise run_bytes, or ask for shorter runs."
            )

    def _read(self, read: ReadRequest, file: Path, pages: Pages, buffer: Bytes) -> PageRun:
        run = self._run(pages, buffer, read(buffer))
        self._verify(file, run)
        return run

    def _run(self, pages: Pages, buffer: Bytes, start: int) -> PageRun:
        """Pages that were read to a buffer, the first of them to ``start``."""
        table = self._table
        starts = table.offset[pages] - (table.offset[pages[0]] - start)
        return PageRun(self._layout, buffer, pages, starts, table.rows[pages], table.nbytes[pages])

    def _verify(self, file: Path, run: PageRun) -> None:
        """Compare the XXH64 of every page with the page table: one kernel call, so that the joining thread runs on.

        A page is checked once for each relation that a process has open. Files never change once they are published,
        so a page that is read again is trusted for what was seen.
        """
        fresh = np.flatnonzero(~self._verified[run.pages])
        if fresh.size == 0:
            return
        sums = np.zeros(fresh.size, np.uint64)
        hash_ranges(run.starts[fresh], run.nbytes[fresh], run.buffer, sums)
        pages = run.pages[fresh]
        wrong = np.flatnonzero(sums != self._table.checksum[pages])
        if wrong.size:
            page = int(pages[wrong[0]])
            offset = int(self._table.offset[page])
            raise CorruptRelation(
                f"page {page} ({file}, bytes {offset} to {offset + int(self._table.nbytes[page])}) does not match its "
                "checksum. Restore the file from a copy, or build the relation again."
            )
        self._verified[pages] = True

    def close(self) -> None:
        """Wait for the threads, end them, and close the disk's files."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._pending.clear()
        self._idle.clear()
        while self._lanes:
            self._lanes.pop().close()
        self._disk.close()


class _LaneRun:
    """A run that a lane reads."""

    def __init__(self, reader: RunReader, lane: ReadLane, read: ReadRequest, pages: Pages, buffer: Bytes) -> None:
        self._reader, self._lane, self._read, self._pages, self._buffer = reader, lane, read, pages, buffer
        descriptor, start, self._nbytes, self._before = read.system_read()
        lane.start([(descriptor, buffer.ctypes.data, self._nbytes, start)])

    def result(self) -> PageRun:
        """The run, like that of a future."""
        start = self._before
        (got,) = self._lane.wait(1)
        self._reader._idle.append(self._lane)
        if got < start + self._read.nbytes:
            start = self._read(self._buffer)  # to say why, or because it was interrupted
        return self._reader._run(self._pages, self._buffer, start)
