"""Reads runs of pages, checks them, and reads ahead in the background while the caller joins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.kernels.types import Bools, Bytes, Int64s
from semistream.kernels.xxhash64 import hash_bytes
from semistream.relation.disk import Disk, allocate_buffer, buffer_bytes
from semistream.relation.page_layout import PageLayout
from semistream.relation.page_run import PageRun
from semistream.relation.page_table import PageTable

Pages = npt.NDArray[np.intp]


class RunReader:
    """Gives runs of pages in the order asked for, with ``buffers - 1`` of them read ahead by one thread.

    ``verified`` says which pages need no check of their checksum any more, and is kept up to date. Only what was asked
    for is read, and it is counted when it is asked for, so that the counts of the disk are the same every time,
    whatever the thread has come to. Errors of the thread are raised where the run would have been taken.
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
        self._pending: deque[tuple[Future[PageRun], Bytes]] = deque()
        self._taken: Bytes | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._verified = np.zeros(len(table), np.bool_) if verified is None else verified

    @staticmethod
    def memory_bytes(run_bytes: int, buffers: int = 2) -> int:
        """Bytes that the buffers of a reader take."""
        return buffers * buffer_bytes(run_bytes)

    @property
    def room(self) -> int:
        """How many more runs can be asked for before one must be taken."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """Runs asked for and not taken yet."""
        return len(self._pending)

    def ask(self, pages: Pages) -> None:
        """Start to read a run: pages that lie one behind the other in one file."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semistream-reader")
        buffer = self._free.popleft()
        file, offset, nbytes = self._place(pages)
        self._disk.count(file, offset, nbytes, pages.size)
        self._pending.append((self._thread.submit(self._read, pages, buffer), buffer))

    def take(self) -> PageRun:
        """Wait for the oldest run asked for. Its buffer is the caller's until `give_back`."""
        future, buffer = self._pending.popleft()
        self._taken = buffer
        return future.result()

    def give_back(self) -> None:
        """Say that the run taken last is no longer needed: its buffer can be read into again."""
        if self._taken is not None:
            self._free.append(self._taken)
            self._taken = None

    def read_all(self, runs: Iterable[Pages]) -> Iterator[PageRun]:
        """Every run in order, read ahead; each is valid until the next one is asked for."""
        for pages in runs:
            if not self._free:
                yield self.take()
                self.give_back()
            self.ask(pages)
        while self._pending:
            yield self.take()
            self.give_back()

    def _place(self, pages: Pages) -> tuple[Path, int, int]:
        """The file of a run, where it begins there, and its bytes."""
        table = self._table
        first, last = int(pages[0]), int(pages[-1])
        offset = int(table.offset[first])
        return self._files[int(table.file[first])], offset, int(table.offset[last] + table.nbytes[last]) - offset

    def _read(self, pages: Pages, buffer: Bytes) -> PageRun:
        table = self._table
        file, offset, nbytes = self._place(pages)
        at = self._disk.fetch(file, offset, nbytes, into=buffer)
        starts = table.offset[pages] - offset + at
        lengths = table.nbytes[pages]
        self._verify(file, pages, buffer, starts, lengths)
        return PageRun(self._layout, buffer, pages, starts, table.rows[pages], lengths)

    def _verify(self, file: Path, pages: Pages, buffer: Bytes, starts: Int64s, lengths: Int64s) -> None:
        """Compare the XXH64 of every page with the page table: one kernel call, so that the joining thread runs on.

        A page is checked once for each relation that a process has open. Files never change once they are published,
        so a scan that comes round again trusts what was seen.
        """
        if self._verified[pages].all():
            return
        sums = np.zeros(pages.size, np.uint64)
        hash_bytes(np.append(starts, starts[-1] + lengths[-1]), buffer, sums)
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
        """Wait for the thread, end it, and close the disk's files."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None
        self._pending.clear()
        self._disk.close()
