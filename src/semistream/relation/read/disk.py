"""How bytes of R reach memory: one interface that counts every request, page and byte.

`DirectDisk` passes by the operating system's page cache, so that a memory budget means what it says; `BufferedDisk`
goes through it; `SimulatedDisk` reads the same bytes and moves a clock by a seek and a transfer time, so that the disks
of the papers can be had again exactly, and fast.

A disk also says what a request costs. `Disk.costs` are what read plans are made with: fixed when the disk is made, so
that a join asks for the same pages in every run. `Disk.measured_costs` follow from how long its own requests took, and
differ from run to run: they are for reports, and for whoever wants to make the next disk with them.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.kernels.array_types import Bytes
from semistream.relation.read.disk_costs import DiskCosts, RequestTimes

_HUGE = 2 << 20  # bytes of a huge page
ALIGNMENT = 4096  # what O_DIRECT asks of offsets, lengths and memory on every file system we know
SOLID_STATE = DiskCosts(seek_s=80e-6, transfer_s_per_byte=1 / 3e9)
"""What real disks are taken to cost: an NVMe drive that is asked for one thing at a time."""


def buffer_bytes(nbytes: int) -> int:
    """Bytes of a buffer that any ``nbytes`` of a file can be read into, wherever they start."""
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT + ALIGNMENT


def allocate_buffer(nbytes: int) -> Bytes:
    """A zeroed buffer aligned for direct I/O; memory is taken by the page as it is first written.

    Direct I/O pins the buffer's pages each time, so let there be few: what it has of whole huge pages lies in such. A
    mapping begins anywhere, so that one is made in which the buffer can begin with one; the rest is never touched.
    """
    if nbytes < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
    memory = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared, it gets none
    mapped = np.frombuffer(memory, np.uint8)
    begin = -mapped.ctypes.data % _HUGE
    memory.madvise(mmap.MADV_HUGEPAGE, begin, nbytes // _HUGE * _HUGE)
    return mapped[begin : begin + nbytes]


def allocate_buffers(sizes: Sequence[int]) -> list[Bytes]:
    """Buffers one behind the other in one block, each aligned for direct I/O, which live as long as any of them.

    Those that are too small for a huge page of their own share one with their neighbours. The first ones surely lie in
    such if the block has any, so let these be the ones that are read to: a disk is up to three times as fast.
    """
    begins = list(accumulate((-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in sizes), initial=0))
    block = allocate_buffer(begins[-1])
    return [block[begin : begin + nbytes] for begin, nbytes in zip(begins, sizes, strict=False)]


@dataclass
class DiskCounts:
    """What a disk was asked for. A request that goes on where the last one ended needs no seek.

    A page in several column groups counts once for each that is read.
    """

    requests: int = 0
    seeks: int = 0
    pages: int = 0
    bytes: int = 0

    @property
    def pages_sequential(self) -> int:
        """Pages that followed another one; a seek's first page does not."""
        return self.pages - self.seeks

    def __add__(self, other: DiskCounts) -> DiskCounts:
        return DiskCounts(
            self.requests + other.requests,
            self.seeks + other.seeks,
            self.pages + other.pages,
            self.bytes + other.bytes,
        )


class ReadRequest(NamedTuple):
    """A read that was counted. Called with a buffer it reads, and gives where in the buffer the bytes start."""

    disk: Disk
    path: Path
    offset: int
    nbytes: int
    timed: bool  # what it costs is to be measured

    def __call__(self, into: Bytes) -> int:
        return self.disk.fetch(self.path, self.offset, self.nbytes, into, timed=self.timed)

    @property
    def plain(self) -> bool:
        """Whether it is nothing but a read of a file, which `system_read` may do as well."""
        return not self.timed and type(self.disk).fetch is Disk.fetch

    def system_read(self) -> tuple[int, int, int, int]:
        """The descriptor, where it reads from, how many bytes, and how many of these come before those asked for."""
        start, nbytes = self.disk._range(self.offset, self.nbytes)
        return self.disk._descriptor(self.path), start, nbytes, self.offset - start


class Disk(ABC):
    """Reads byte ranges of files into caller-owned buffers, and counts. ``costs`` are what plans take it to cost."""

    def __init__(self, *, costs: DiskCosts = SOLID_STATE, clock: Callable[[], float] = time.perf_counter) -> None:
        self.costs = costs
        self.counts = DiskCounts()
        self._clock = clock
        self._times = RequestTimes()
        self._descriptors: dict[Path, int] = {}
        self._opening = threading.Lock()
        self._head: tuple[Path, int] | None = None

    @property
    def measured_costs(self) -> DiskCosts | None:
        """What requests with a seek have shown so far; None until there were some of at least two sizes."""
        return self._times.fit()

    @abstractmethod
    def _open(self, path: Path) -> int: ...

    def _range(self, offset: int, nbytes: int) -> tuple[int, int]:
        return offset, nbytes

    def read(self, path: Path, offset: int, nbytes: int, *, pages: int, into: Bytes) -> int:
        """Read ``nbytes`` at ``offset``; gives where in ``into`` they start.

        ``into`` needs `buffer_bytes` of room. A file that ends early is a `CorruptRelation`.
        """
        return self.request(path, offset, nbytes, pages=pages)(into)

    def request(self, path: Path, offset: int, nbytes: int, *, pages: int) -> ReadRequest:
        """Count a read, in the order in which it is asked for; what it gives does the reading, in any thread."""
        seek = self._count(path, offset, nbytes, pages)
        return ReadRequest(self, path, offset, nbytes, timed=seek and self._times.wants(nbytes))

    def fetch(self, path: Path, offset: int, nbytes: int, into: Bytes, *, timed: bool) -> int:
        """Read what was counted; if it is ``timed``, note how long that takes."""
        descriptor = self._descriptor(path)
        start, length = self._range(offset, nbytes)
        view = into.data[:length]
        done = 0
        began_s = self._clock()
        while done < length:
            got = os.preadv(descriptor, [view[done:]], start + done)
            done += got
            if got == 0 or (done >= offset - start + nbytes):
                break
        if timed:
            self._times.add(nbytes, self._clock() - began_s)
        if done < offset - start + nbytes:
            raise CorruptRelation(
                f"{path} ends at byte {start + done}, but bytes {offset} to {offset + nbytes} were expected. "
                "The file is truncated: restore it or build the relation again."
            )
        return offset - start

    def _descriptor(self, path: Path) -> int:
        with self._opening:
            descriptor = self._descriptors.get(path)
            if descriptor is None:
                try:
                    descriptor = self._descriptors[path] = self._open(path)
                except FileNotFoundError:
                    raise CorruptRelation(
                        f"{path} is missing. It was vacuumed, or lost: open the current version, or restore it."
                    ) from None
            return descriptor

    def _count(self, path: Path, offset: int, nbytes: int, pages: int) -> bool:
        """Count a request; true when it needs a seek."""
        seek = self._head != (path, offset)
        self.counts.requests += 1
        self.counts.seeks += seek
        self.counts.pages += pages
        self.counts.bytes += nbytes
        self._head = (path, offset + nbytes)
        return seek

    def close(self) -> None:
        """Close the files; the disk opens them again when it is read from again."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


class BufferedDisk(Disk):
    """Reads through the operating system's page cache."""

    def _open(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class DirectDisk(Disk):
    """Reads past the page cache (O_DIRECT): whole blocks around the range asked for."""

    def _open(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)

    def _range(self, offset: int, nbytes: int) -> tuple[int, int]:
        start = offset // ALIGNMENT * ALIGNMENT
        end = (offset + nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return start, end - start


class SimulatedDisk(BufferedDisk):
    """A disk of ``seek_s`` seconds per seek and ``transfer_s`` per page, on a clock of its own.

    >>> disk = SimulatedDisk(seek_s=0.01, transfer_s=0.0001)
    >>> disk.now_s
    0.0
    """

    def __init__(self, *, seek_s: float, transfer_s: float) -> None:
        if not (seek_s >= 0 and transfer_s >= 0):
            raise InvalidArgument(f"seek_s is {seek_s} and transfer_s {transfer_s}; neither can be negative.")
        super().__init__(costs=DiskCosts(seek_s=seek_s, transfer_s_per_page=transfer_s, follows=0.0))
        self.seek_s = seek_s
        self.transfer_s = transfer_s

    @property
    def now_s(self) -> float:
        """Seconds that all requests so far have taken: a function of the counts alone."""
        return self.counts.seeks * self.seek_s + self.counts.pages * self.transfer_s

    @property
    def measured_costs(self) -> DiskCosts:
        """Its own: on its clock, requests take no other time."""
        return self.costs


def open_disk(disk: str | Disk, path: Path) -> Disk:
    """The disk named ``"direct"``, ``"buffered"`` or ``"auto"`` (direct where the file system at ``path`` can)."""
    if isinstance(disk, Disk):
        return disk
    if disk == "buffered":
        return BufferedDisk()
    if disk == "direct" or (disk == "auto" and _takes_direct(path)):
        return DirectDisk()
    if disk == "auto":
        return BufferedDisk()
    raise InvalidArgument(f"disk is {disk!r}; give 'auto', 'direct', 'buffered' or a Disk.")


def _takes_direct(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return False
    try:
        return os.preadv(descriptor, [mmap.mmap(-1, ALIGNMENT)], 0) >= 0
    except OSError:
        return False
    finally:
        os.close(descriptor)
