"""Reads runs of pages, checks them, and reads ahead in the background while the caller joins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.types import Bytes
from semistream.relation.disk import ALIGNMENT, Disk, allocate_buffer, buffer_bytes
from semistream.relation.disk_costs import DiskCosts
from semistream.relation.page_layout import PageLayout
from semistream.relation.page_run import PageRun
from semistream.relation.page_table import PageTable
from semistream.relation.read_plan import Pages, PageSequence
from semistream.relation.segment_request import SegmentRequest, span_of

T = TypeVar("T")

_SEGMENT_THREADS = 3  # for pages of several segments, whose requests are short: a disk takes some at a time


class RunReader:
    """Gives runs of pages in the order asked for, with ``buffers - 1`` of them read ahead by ``threads``.

    Of a run one request reads the segments of each column group in ``table``; ``files`` are those of each group. The
    table keeps which segments need no check of their checksum any more. Only what was asked for is read, so that the
    counts of the disk are the same every time: a page counts once for each of its segments. Errors of the thread are
    raised where the run would have been taken.
    """

    def __init__(
        self,
        table: PageTable,
        layout: PageLayout,
        files: list[list[Path]],
        disk: Disk,
        *,
        run_bytes: int,
        buffers: int = 2,
        threads: int = 1,
    ) -> None:
        if buffers < 1:
            raise InvalidArgument(f"buffers is {buffers}; a reader needs at least 1.")
        self._table = table
        self._layout = layout
        self._files = files
        self._disk = disk
        self._run_bytes = run_bytes
        self._free: deque[Bytes] = deque(allocate_buffer(self._buffer_bytes) for _ in range(buffers))
        self._pending: deque[tuple[Future[Any], Bytes, int]] = deque()  # and the pages of the run
        self._taken: Bytes | None = None
        self._threads = threads if len(table.segments) == 1 else max(threads, min(buffers, _SEGMENT_THREADS))
        self._pool: ThreadPoolExecutor | None = None

    @staticmethod
    def memory_bytes(run_bytes: int, buffers: int = 2, segments: int = 1) -> int:
        """Bytes that the buffers of a reader take, for pages of so many segments, each aligned on its own."""
        return buffers * (buffer_bytes(run_bytes) + 2 * ALIGNMENT * (segments - 1))

    @property
    def _buffer_bytes(self) -> int:
        return self.memory_bytes(self._run_bytes, 1, len(self._table.segments))

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
        return all(buffer.size == self._buffer_bytes for buffer in held)

    def resize(self, run_bytes: int) -> None:
        """Take runs of up to ``run_bytes`` from now on. Buffers in use are replaced when they are given back."""
        self._run_bytes = run_bytes
        free, self._free = len(self._free), deque()  # the old ones are let go before there are new ones
        self._free.extend(allocate_buffer(self._buffer_bytes) for _ in range(free))

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
        """What plans take a run to cost: a request of the disk for each segment."""
        return self._disk.costs.in_segments(len(self._table.segments))

    def ask(self, run: Pages | PageSequence) -> None:
        """Start to read a run: pages that lie one behind the other, or a sequence of a read plan.

        Of a sequence all that lies between its pages is read and counted by the disk, but only the pages it names are
        checked and given.
        """
        pages, span_pages = run if isinstance(run, PageSequence) else (run, run.size)
        self._require_readable(pages, span_pages)
        number = int(self._table.file[pages[0]])
        requests = [
            SegmentRequest.of(self._disk, files[number], segment, pages, span_pages)
            for files, segment in zip(self._files, self._table.segments, strict=True)
        ]
        buffer = self._free.popleft()
        self._pending.append((self.submit(self._read, requests, pages, buffer), buffer, pages.size))

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
            if buffer.size != self._buffer_bytes:
                del buffer  # before there is a new one
                buffer = allocate_buffer(self._buffer_bytes)
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

    def _require_readable(self, pages: Pages, span_pages: int) -> None:
        """Refuse what would be miscounted, or is larger than a buffer."""
        table = self._table
        nbytes = int(span_of(table, pages)[1])
        if span_pages == pages.size and nbytes != table.nbytes[pages].sum():
            raise InvalidArgument(
                f"the {pages.size} pages from {pages[0]} to {pages[-1]} do not lie one behind the other. Ask for runs "
                "of PageTable.cut_runs, or for the sequences of a read plan."
            )
        if buffer_bytes(nbytes) > buffer_bytes(self._run_bytes):
            raise InvalidArgument(
                f"the pages from {pages[0]} to {pages[-1]} span {nbytes} bytes, and the reader's runs have at most "
                f"{self._run_bytes}. Raise run_bytes, or ask for shorter runs."
            )

    def _read(self, requests: list[SegmentRequest], pages: Pages, buffer: Bytes) -> PageRun:
        starts = np.empty((len(requests), pages.size), np.int64)
        lengths = np.empty_like(starts)
        begin = 0
        for number, request in enumerate(requests):
            starts[number], lengths[number] = request.read_into(buffer, begin, pages)
            begin += buffer_bytes(request.nbytes)
        return PageRun(self._layout, buffer, pages, starts, self._table.rows[pages], lengths)

    def close(self) -> None:
        """Wait for the threads, end them, and close the disk's files."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._pending.clear()
        self._disk.close()
