"""RunReader: reads runs of pages, verifies them, and reads ahead in the background while the caller joins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bytes
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.read.disk import ALIGNMENT, Disk, allocate_buffer, buffer_bytes
from semistream.relation.read.disk_costs import DiskCosts
from semistream.relation.read.page_run import PageRun
from semistream.relation.read.read_lanes import ReadLanes
from semistream.relation.read.read_plan import Pages, PageSequence
from semistream.relation.read.segment_request import SegmentRequest
from semistream.storage.locks import OwnProcess


def span_of(table: PageTable | SegmentTable, pages: Pages) -> tuple[int, int]:
    """Return the offset of a run in its file, and its bytes there including everything between its pages."""
    start, last = int(table.offset[pages[0]]), pages[-1]
    return start, int(table.offset[last] + table.nbytes[last]) - start


T = TypeVar("T")

_LOOK_EVERY = 256  # runs between tests that all pages of R are verified
_SEGMENT_THREADS = 3  # for pages of several segments, whose requests are short: a disk serves several at a time


class RunReader:
    """Reader of page runs in the order requested; ``threads`` read ``buffers - 1`` of them ahead.

    With one buffer nothing can be read ahead, so `take` reads the run in the caller's thread. The buffers are allocated
    unless ``memory`` provides them, each of `memory_bytes`.

    One request per column group in ``table`` reads the segments of a run; ``files`` lists the files of each group. The
    table remembers the verified segments. Only requested runs are read, so that the counts of the disk are
    reproducible; a page counts once for each of its segments. `take` raises any error of the threads in place of the
    run.
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
        memory: Sequence[Bytes] | None = None,
    ) -> None:
        if buffers < 1:
            raise InvalidArgument(f"buffers is {buffers}; a reader needs at least 1.")
        self._table = table
        self._layout = layout
        self._files = files
        self._disk = disk
        self._run_bytes = run_bytes
        self._buffers = buffers
        self._free = deque(self._new_buffers(buffers) if memory is None else map(_Buffer, memory))
        self._pending: deque[tuple[_Coming, _Buffer, int]] = deque()  # with the number of pages
        self._taken: _Buffer | None = None
        self._all_verified = False
        self._asked = 0
        self._threads = threads if len(table.segments) == 1 else max(threads, min(buffers, _SEGMENT_THREADS))
        self._pool: ThreadPoolExecutor | None = None
        self._process = OwnProcess()
        self._in_lanes = buffers > 1 and ReadLanes.supported() and len(table.segments) <= ReadLanes.most_reads
        self._lanes: ReadLanes | None = None

    @staticmethod
    def memory_bytes(run_bytes: int, buffers: int = 2, segments: int = 1) -> int:
        """Return the bytes of a reader's buffers, for pages of ``segments`` segments, each aligned separately."""
        return buffers * (buffer_bytes(run_bytes) + 2 * ALIGNMENT * (segments - 1))

    @property
    def _buffer_bytes(self) -> int:
        return self.memory_bytes(self._run_bytes, 1, len(self._table.segments))

    def _new_buffers(self, count: int) -> Iterator[_Buffer]:
        """Allocate buffers."""
        return (_Buffer(allocate_buffer(self._buffer_bytes)) for _ in range(count))

    @property
    def run_bytes(self) -> int:
        """Bytes of the longest run that can be requested."""
        return self._run_bytes

    @property
    def idle(self) -> bool:
        """True if no buffer is in use."""
        return not self._pending and self._taken is None

    @property
    def resized(self) -> bool:
        """True if all buffers have the size for `run_bytes`; runs requested before `resize` keep their old buffers."""
        held = [*self._free, *(buffer for _, buffer, _ in self._pending)]
        if self._taken is not None:
            held.append(self._taken)
        return all(buffer.data.size == self._buffer_bytes for buffer in held)

    def resize(self, run_bytes: int) -> None:
        """Allow runs of up to ``run_bytes`` from now on. Buffers in use are replaced when they are given back."""
        self._run_bytes = run_bytes
        free, self._free = len(self._free), deque()  # frees the old buffers before allocating new ones
        self._free.extend(self._new_buffers(free))

    @property
    def room(self) -> int:
        """Number of runs that can be requested before one must be taken."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """Number of runs requested and not yet taken."""
        return len(self._pending)

    @property
    def pages_waiting(self) -> int:
        """Number of pages in runs requested and not yet taken, without unwanted pages in between."""
        return sum(pages for _, _, pages in self._pending)

    @property
    def costs(self) -> DiskCosts:
        """Costs of a run assumed by plans: one disk request per segment."""
        return self._disk.costs.in_segments(len(self._table.segments))

    def ask(self, run: Pages | PageSequence) -> None:
        """Request a run: adjacent pages, or a sequence of a read plan.

        For a sequence, the disk reads and counts everything between its pages, but only its own pages are verified and
        returned.
        """
        pages, span_pages, spans = run if isinstance(run, PageSequence) else (run, run.size, None)
        segments = self._table.segments
        if spans is None:
            self._require_adjacent(pages, span_pages)
            spans = [span_of(segment, pages) for segment in segments]
        self._require_fitting(pages, sum(nbytes for _, nbytes in spans))
        number = int(self._table.file[pages[0]])
        requests: list[SegmentRequest] = []
        begin = 0
        parts = zip(self._files, segments, self._layout.segments, spans, strict=True)
        for files, segment, layout, (offset, nbytes) in parts:
            read = self._disk.request(files[number], offset, nbytes, pages=span_pages)
            codes = -1 if requests else self._layout.code_buffer
            requests.append(SegmentRequest(self._table, segment, layout, codes, read, begin))
            begin += buffer_bytes(nbytes)
        buffer = self._free.popleft()
        coming: _Coming
        if self._in_lanes and all(request.read.plain for request in requests) and self._are_verified(requests, pages):
            coming = _LaneRun(self, self._opened_lanes(), requests, pages, buffer)
        elif self._buffers == 1:
            coming = _LateRun(partial(self._read, requests, pages, buffer.data))
        else:
            coming = self.submit(self._read, requests, pages, buffer.data)
        self._pending.append((coming, buffer, pages.size))

    def _are_verified(self, requests: list[SegmentRequest], pages: Pages) -> bool:
        """True if these pages were verified before. Once all pages of R are, the test is skipped."""
        if not self._all_verified:
            self._asked += 1
            if self._asked % _LOOK_EVERY == 0:
                self._all_verified = all(bool(segment.verified.all()) for segment in self._table.segments)
        return self._all_verified or all(request.is_verified(pages) for request in requests)

    def _opened_lanes(self) -> ReadLanes:
        if self._lanes is None:
            self._lanes = ReadLanes(self._buffers)
        return self._lanes

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run other work in the reader's threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="semistream-reader")
        return self._pool.submit(work, *arguments)

    def take(self) -> Any:
        """Wait for the oldest requested run and return it. Its buffer belongs to the caller until `give_back`."""
        self._process.require()
        future, buffer, _ = self._pending.popleft()
        self._taken = buffer
        return future.result()

    def give_back(self) -> None:
        """Release the run taken last, so that its buffer can be reused."""
        if self._taken is not None:
            buffer, self._taken = self._taken, None
            if buffer.data.size != self._buffer_bytes:
                del buffer  # frees it before allocating a new one
                self._free.extend(self._new_buffers(1))
            else:
                self._free.append(buffer)

    def read_all(self, runs: Iterable[Pages | PageSequence]) -> Iterator[PageRun]:
        """Yield the runs in order, reading ahead; each is valid until the next one is yielded."""
        for run in runs:
            if not self._free:
                yield self.take()
                self.give_back()
            self.ask(run)
        while self._pending:
            yield self.take()
            self.give_back()

    def _require_adjacent(self, pages: Pages, span_pages: int) -> None:
        """Raise `InvalidArgument` for pages with gaps between them, which would be miscounted."""
        if span_pages == pages.size and span_of(self._table, pages)[1] != self._table.nbytes[pages].sum():
            raise InvalidArgument(
                f"the {pages.size} pages from {pages[0]} to {pages[-1]} are not adjacent on disk. Ask for runs from "
                "PageTable.cut_runs, or for the sequences of a read plan."
            )

    def _require_fitting(self, pages: Pages, nbytes: int) -> None:
        """Raise `InvalidArgument` for a run larger than a buffer."""
        if buffer_bytes(nbytes) > buffer_bytes(self._run_bytes):
            raise InvalidArgument(
                f"the pages from {pages[0]} to {pages[-1]} span {nbytes} bytes, but the reader's runs have at most "
                f"{self._run_bytes}. Raise run_bytes, or ask for shorter runs."
            )

    def _read(self, requests: list[SegmentRequest], pages: Pages, buffer: Bytes) -> PageRun:
        run = self._run(requests, pages, buffer, [request.read(buffer[request.begin :]) for request in requests])
        for request, starts, nbytes in zip(requests, run.starts, run.nbytes, strict=True):
            request.verify(pages, buffer, starts, nbytes)
        return run

    def _run(self, requests: list[SegmentRequest], pages: Pages, buffer: Bytes, before: list[int]) -> PageRun:
        """Build the run of pages read to a buffer; ``before`` has the unwanted leading bytes of each request."""
        first, last = int(pages[0]), int(pages[-1])
        some = slice(first, last + 1) if last - first + 1 == pages.size else pages  # a slice makes no copies
        starts, lengths = [], []
        for request, ahead in zip(requests, before, strict=True):
            offset = request.segments.offset[some]
            starts.append(offset - (offset[0] - (request.begin + ahead)))
            lengths.append(request.segments.nbytes[some])
        if len(requests) == 1:
            return PageRun(self._layout, buffer, pages, starts[0][None], self._table.rows[some], lengths[0][None])
        return PageRun(self._layout, buffer, pages, np.stack(starts), self._table.rows[some], np.stack(lengths))

    def close(self) -> None:
        """Wait for the threads to end, and close the disk's files. In a fork there are no threads."""
        if self._pool is not None and not self._process.forked:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        self._pending.clear()
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None
        self._disk.close()


class _Buffer:
    """The memory of a run, and its address."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.address: int = data.ctypes.data


class _LateRun(NamedTuple):
    """A future-like run, read only when its result is requested."""

    result: Callable[[], PageRun]
    """Function that reads and returns the run."""


class _LaneRun:
    """A future-like run that lanes are reading."""

    def __init__(
        self, reader: RunReader, lanes: ReadLanes, requests: list[SegmentRequest], pages: Pages, buffer: _Buffer
    ) -> None:
        self._reader, self._requests, self._pages, self._buffer = reader, requests, pages, buffer.data
        reads = [request.read.system_read() for request in requests]
        self._before = [before for *_, before in reads]
        self._reads = lanes.start(
            [
                (descriptor, buffer.address + request.begin, nbytes, start)
                for request, (descriptor, start, nbytes, _) in zip(requests, reads, strict=True)
            ]
        )

    def result(self) -> PageRun:
        """Wait for the run and return it."""
        got = self._reads.wait()
        for i, request in enumerate(self._requests):
            if got[i] < self._before[i] + request.read.nbytes:  # read again, to raise the error or to finish the read
                self._before[i] = request.read(self._buffer[request.begin :])
        return self._reader._run(self._requests, self._pages, self._buffer, self._before)


_Coming = Future[PageRun] | _LateRun | _LaneRun
