"""Disks: one interface for reading the bytes of R, which counts every request, page and byte.

`DirectDisk` bypasses the operating system's page cache, so that a memory budget covers all memory used. `BufferedDisk`
uses that cache. `SimulatedDisk` reads the same bytes and advances a clock by seek and transfer times, which reproduces
the disks of the papers exactly, and fast.

A disk also has a cost model. Read plans use `Disk.costs`, which are fixed when the disk is created, so that a join
requests the same pages in every run.
"""

from __future__ import annotations

import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from semistream.errors import CorruptRelation, InvalidArgument, RelationError
from semistream.kernels.array_types import Bytes
from semistream.relation.format.manifest import list_versions, read_manifest
from semistream.relation.read.disk_costs import DiskCosts
from semistream.storage.disk_errors import disk_errors

_HUGE = 2 << 20  # bytes of a huge page
ALIGNMENT = 4096  # alignment that O_DIRECT requires of offsets, lengths and memory on every file system we know
_DIRECT: int | None = getattr(os, "O_DIRECT", None)  # macOS and Windows have no direct reads
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
SOLID_STATE = DiskCosts(seek_s=80e-6, transfer_s_per_byte=1 / 3e9)
"""Default costs of real disks: an NVMe drive that serves one request at a time."""


def buffer_bytes(nbytes: int) -> int:
    """Return the bytes of a buffer large enough for any ``nbytes`` of a file, at any offset."""
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT + ALIGNMENT


def allocate_buffer(nbytes: int) -> Bytes:
    """Allocate a zeroed buffer aligned for direct I/O. Memory is committed page by page on the first write.

    Direct I/O pins the buffer's memory pages on each request. Huge pages keep their number low, so a buffer of at least
    one huge page starts on a huge-page boundary. As a mapping may start anywhere, it is made one huge page longer than
    the buffer; the surplus is never touched.
    """
    if nbytes < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
    memory = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared gets no huge pages
    mapped = np.frombuffer(memory, np.uint8)
    begin = -mapped.ctypes.data % _HUGE
    memory.madvise(mmap.MADV_HUGEPAGE, begin, nbytes // _HUGE * _HUGE)
    return mapped[begin : begin + nbytes]


def allocate_buffers(sizes: Sequence[int]) -> list[Bytes]:
    """Allocate buffers in one contiguous block, each aligned for direct I/O. The block lives as long as any of them.

    Buffers too small for a huge page of their own share one with their neighbours. If the block has huge pages, the
    first buffers are sure to lie in them, so use these for disk reads: a disk is then up to three times as fast.
    """
    begins = list(accumulate((-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in sizes), initial=0))
    block = allocate_buffer(begins[-1])
    return [block[begin : begin + nbytes] for begin, nbytes in zip(begins, sizes, strict=False)]


@dataclass
class DiskCounts:
    """Counts of the requests to a disk. A request that starts where the last one ended needs no seek.

    A page counts once for each column group read.
    """

    requests: int = 0
    seeks: int = 0
    pages: int = 0
    bytes: int = 0

    @property
    def pages_sequential(self) -> int:
        """Number of pages read sequentially: all but the first page after each seek."""
        return self.pages - self.seeks

    def __add__(self, other: DiskCounts) -> DiskCounts:
        return DiskCounts(
            self.requests + other.requests,
            self.seeks + other.seeks,
            self.pages + other.pages,
            self.bytes + other.bytes,
        )


class ReadRequest(NamedTuple):
    """A counted read. Calling it with a buffer reads the bytes and returns their start in the buffer."""

    disk: Disk
    path: Path
    offset: int
    nbytes: int

    def __call__(self, into: Bytes) -> int:
        return self.disk.fetch(self.path, self.offset, self.nbytes, into)

    @property
    def plain(self) -> bool:
        """True if the request is an ordinary read, so the caller may do it with `system_read` instead."""
        return type(self.disk).fetch is Disk.fetch

    def system_read(self) -> tuple[int, int, int, int]:
        """Return the descriptor, file offset and length of the system call, and its bytes before the requested ones."""
        start, nbytes = self.disk._range(self.offset, self.nbytes)
        return self.disk._descriptor(self.path), start, nbytes, self.offset - start


class Disk(ABC):
    """Reader of byte ranges of files into caller-owned buffers, which counts requests. Plans assume its ``costs``."""

    def __init__(self, *, costs: DiskCosts = SOLID_STATE) -> None:
        self.costs = costs
        self.counts = DiskCounts()
        self._descriptors: dict[Path, int] = {}
        self._opening = threading.Lock()
        self._head: tuple[Path, int] | None = None

    @abstractmethod
    def _open(self, path: Path) -> int: ...

    def _range(self, offset: int, nbytes: int) -> tuple[int, int]:
        return offset, nbytes

    def read(self, path: Path, offset: int, nbytes: int, *, pages: int, into: Bytes) -> int:
        """Read ``nbytes`` at ``offset``; return their start in ``into``.

        ``into`` must have at least `buffer_bytes` of room. Raises `CorruptRelation` if the file ends early.
        """
        return self.request(path, offset, nbytes, pages=pages)(into)

    def request(self, path: Path, offset: int, nbytes: int, *, pages: int) -> ReadRequest:
        """Count a read, in the order of calls, and return a request that does the reading, in any thread."""
        self._count(path, offset, nbytes, pages)
        return ReadRequest(self, path, offset, nbytes)

    def fetch(self, path: Path, offset: int, nbytes: int, into: Bytes) -> int:
        """Do a counted read."""
        descriptor = self._descriptor(path)
        start, length = self._range(offset, nbytes)
        view = into.data[:length]
        done = 0
        with disk_errors(path, "read"):
            while done < length:
                got = self._read_at(descriptor, view[done:], start + done)
                done += got
                if got == 0 or (done >= offset - start + nbytes):
                    break
        if done < offset - start + nbytes:
            raise CorruptRelation(
                f"{path} ends at byte {start + done}, but bytes {offset} to {offset + nbytes} were expected. "
                "The file is truncated: restore it or build the relation again."
            )
        return offset - start

    def _read_at(self, descriptor: int, view: memoryview, offset: int) -> int:
        """Read bytes at an offset into ``view``, and return their number."""
        if hasattr(os, "preadv"):
            return os.preadv(descriptor, [view], offset)
        with self._opening:  # the position in the file is shared by all threads
            os.lseek(descriptor, offset, os.SEEK_SET)
            content = os.read(descriptor, len(view))
        view[: len(content)] = content
        return len(content)

    def _descriptor(self, path: Path) -> int:
        with self._opening:
            descriptor = self._descriptors.get(path)
            if descriptor is None:
                with disk_errors(path, "opened"):
                    try:
                        descriptor = self._descriptors[path] = self._open(path)
                    except FileNotFoundError:
                        raise _missing(path) from None
            return descriptor

    def _count(self, path: Path, offset: int, nbytes: int, pages: int) -> None:
        self.counts.requests += 1
        self.counts.seeks += self._head != (path, offset)
        self.counts.pages += pages
        self.counts.bytes += nbytes
        self._head = (path, offset + nbytes)

    def close(self) -> None:
        """Close the files. The next read opens them again."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


class BufferedDisk(Disk):
    """A disk that reads through the operating system's page cache."""

    def _open(self, path: Path) -> int:
        return os.open(path, _READ)


class DirectDisk(Disk):
    """A disk that bypasses the page cache (O_DIRECT), reading whole blocks around the requested range."""

    def _open(self, path: Path) -> int:
        return os.open(path, _READ | (_DIRECT or 0))

    def _range(self, offset: int, nbytes: int) -> tuple[int, int]:
        start = offset // ALIGNMENT * ALIGNMENT
        end = (offset + nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return start, end - start


class SimulatedDisk(BufferedDisk):
    """A disk with ``seek_s`` seconds per seek and ``transfer_s`` per page, on a clock of its own.

    >>> disk = SimulatedDisk(seek_s=0.01, transfer_s=0.0001)
    >>> disk.now_s
    0.0
    """

    def __init__(self, *, seek_s: float, transfer_s: float) -> None:
        if not (seek_s >= 0 and transfer_s >= 0):
            raise InvalidArgument(f"seek_s is {seek_s} and transfer_s is {transfer_s}; give 0 or more seconds.")
        super().__init__(costs=DiskCosts(seek_s=seek_s, transfer_s_per_page=transfer_s, follows=0.0))
        self.seek_s = seek_s
        self.transfer_s = transfer_s

    @property
    def now_s(self) -> float:
        """Simulated seconds of all requests so far, computed from the counts alone."""
        return self.counts.seeks * self.seek_s + self.counts.pages * self.transfer_s


def open_disk(disk: str | Disk, path: Path) -> Disk:
    """Open the disk named ``"direct"``, ``"buffered"`` or ``"auto"``: direct if the file at ``path`` supports it."""
    if isinstance(disk, Disk):
        return disk
    if disk == "buffered":
        return BufferedDisk()
    if disk == "direct" and _DIRECT is None:
        raise InvalidArgument("disk is 'direct', but this system has no direct reads; give 'auto' or 'buffered'.")
    if disk == "direct" or (disk == "auto" and _takes_direct(path)):
        return DirectDisk()
    if disk == "auto":
        return BufferedDisk()
    raise InvalidArgument(f"disk is {disk!r}; give 'auto', 'direct', 'buffered' or a Disk.")


def _takes_direct(path: Path) -> bool:
    if _DIRECT is None or not hasattr(os, "preadv"):
        return False
    try:
        descriptor = os.open(path, _READ | _DIRECT)
    except OSError:
        return False
    try:
        return os.preadv(descriptor, [mmap.mmap(-1, ALIGNMENT)], 0) >= 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _missing(path: Path) -> RelationError:
    """Return the error for a file of R that is not there: vacuumed if no version needs it, or else lost."""
    folder = path.parent.parent
    with suppress(RelationError):
        needed = (read_manifest(folder, version).file_names for version in list_versions(folder))
        if not any(f"{path.parent.name}/{path.name}" in names for names in needed):
            return RelationError(
                f"{path} is missing: the version that needs it was vacuumed. Open the current version; to keep more "
                "versions, vacuum with a greater keep=."
            )
    return CorruptRelation(f"{path} is missing, though a version needs it. Restore it from a copy.")
