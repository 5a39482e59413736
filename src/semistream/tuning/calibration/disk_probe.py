"""Measure a disk: time requests of several sizes in a temporary file, and fit the costs of a seek and a byte."""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

import numpy as np

from semistream.budget import format_bytes
from semistream.errors import CalibrationError, InvalidArgument
from semistream.kernels.array_types import Bytes
from semistream.relation.read.disk import ALIGNMENT, DirectDisk, allocate_buffer, buffer_bytes, open_disk
from semistream.relation.read.disk_costs import DiskCosts
from semistream.relation.read.read_lanes import Read, ReadLanes
from semistream.tuning.calibration.progress import Progress, unwatched

_PIECE_BYTES = 8 << 20
_SPARED = 4  # the file takes at most 1 / _SPARED of the free space
_WRITING_LIMIT_S = 10.0
_FULL = {errno.ENOSPC, errno.EDQUOT}


class ProbeFile:
    """Temporary file of ``least_bytes`` to ``file_bytes`` on the disk to measure.

    It is smaller than ``file_bytes`` if little space is free or writing is slow. It is unlinked as soon as it is open,
    so nothing stays behind even if the process is killed. Its bytes are random, because some file systems compress, and
    are forced to disk. Reads are direct if the file system supports it; otherwise the file is dropped from the system's
    cache before each read. Raises `CalibrationError` if space or permission is missing.
    """

    def __init__(
        self,
        folder: Path,
        file_bytes: int,
        *,
        least_bytes: int,
        random: np.random.Generator,
        progress: Progress = unwatched,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._folder = folder
        self._least_bytes = least_bytes
        self.nbytes = 0
        wanted_bytes = self._fitting(file_bytes)
        self._descriptor, self._path = self._made()
        with ExitStack() as opened:
            opened.callback(os.close, self._descriptor)
            try:
                self._write(min(_PIECE_BYTES, wanted_bytes), random)
                self._disk = open_disk("auto", self._path)
                opened.callback(self._disk.close)
                self.read(0, 1, allocate_buffer(buffer_bytes(1)))  # opens the file, which then stays open
            finally:
                self._path.unlink()
            began_s = clock()
            while self.nbytes < wanted_bytes and (self.nbytes < least_bytes or clock() - began_s < _WRITING_LIMIT_S):
                progress(self.nbytes / wanted_bytes)
                self._write(min(_PIECE_BYTES, wanted_bytes - self.nbytes), random)
            self._opened = opened.pop_all()

    @property
    def direct(self) -> bool:
        """True if reads bypass the system's cache."""
        return isinstance(self._disk, DirectDisk)

    def prepare(self) -> None:
        """Make the next read come from the disk. Call it before each read."""
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, offset: int, nbytes: int, into: Bytes) -> None:
        """Read a part of the file, as operators read R."""
        self._disk.read(self._path, offset, nbytes, pages=1, into=into)

    def lane_read(self, offset: int, nbytes: int, into: Bytes) -> Read:
        """Return a read of a part of the file for a lane to do."""
        request = self._disk.request(self._path, offset, nbytes, pages=1)
        descriptor, start, length, _ = request.system_read()
        return descriptor, into.ctypes.data, length, start

    def close(self) -> None:
        """Close the file, which frees its space."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _fitting(self, file_bytes: int) -> int:
        """Return the size of the file, which leaves most of the free space unused."""
        fitting = min(file_bytes, shutil.disk_usage(self._folder).free // _SPARED)
        if fitting < self._least_bytes:
            raise self._no_space()
        return fitting

    def _no_space(self) -> CalibrationError:
        free = format_bytes(shutil.disk_usage(self._folder).free)
        least, wanted = format_bytes(self._least_bytes), format_bytes(_SPARED * self._least_bytes)
        return CalibrationError(
            f"{self._folder} has {free} free, and measuring its disk takes {wanted}: a file of {least}, for some "
            "seconds, in at most a quarter of the free space. Make room, or name another folder of the same disk."
        )

    def _made(self) -> tuple[int, Path]:
        try:
            descriptor, name = tempfile.mkstemp(prefix=".semistream-calibrate-", suffix=".tmp", dir=self._folder)
        except OSError as error:
            raise CalibrationError(
                f"{self._folder} cannot be written to ({error.strerror}), and measuring its disk needs a temporary "
                "file. Name another folder of the same disk: the profile is valid for the whole disk."
            ) from error
        return descriptor, Path(name)

    def _write(self, nbytes: int, random: np.random.Generator) -> None:
        """Append ``nbytes`` and wait until they are on disk, so that the clock sees slow writes."""
        left = memoryview(random.bytes(nbytes))
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno in _FULL:
                raise self._no_space() from error
            raise
        self.nbytes += nbytes


SIZES = tuple(kib << 10 for kib in (8, 16, 64, 256, 1024, 4096))
"""Sizes of requests in bytes: from a page of the papers to the longest run that operators read."""
FILE_BYTES = 256 << 20
_PLACES = 8  # largest requests that fit in the file, at least: the disk's own cache holds too much of a smaller file
_WRITING_SHARE = 0.3  # share of the progress for writing the file
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 400
_BUFFERS = 3  # used in turn, as in joins: a single buffer would stay in the processor's cache
_IN_A_ROW = 4  # consecutive requests of the largest size, as a sweep requests runs
ROUNDS_AT_ONCE = 40
"""Rounds that compare such requests with and without lanes."""


@dataclass(frozen=True)
class RequestTime:
    """Median time of ``requests`` requests of ``nbytes`` at random places."""

    nbytes: int
    seconds: float
    requests: int


@dataclass(frozen=True)
class DiskProbe:
    """Request times measured in a file of ``file_bytes``, and the costs fitted to them.

    ``direct`` is true if reads bypassed the system's cache (O_DIRECT), as those of joins do where possible. With large
    requests, the disk transfers ``at_once`` times as many bytes per second if lanes request their parts in parallel and
    the next request right after (`ReadLanes`).
    """

    times: tuple[RequestTime, ...]
    costs: DiskCosts
    direct: bool
    file_bytes: int
    at_once: float = 1.0

    @property
    def note(self) -> str | None:
        """Caveat for a reader of the times, if there is one."""
        if self.direct:
            return None
        return "the file system supports no direct reads (O_DIRECT): these went through the system's cache"


class DiskProber:
    """Measurement of the disk that holds a folder, in parts with other measurements in between.

    A shared disk may be slow for some seconds, and parts spread over time do not all fall into such a period. They take
    about ``limit_s`` seconds in total, plus the time to write a `ProbeFile` of ``file_bytes``, which leaves nothing
    behind. Raises `CalibrationError` if space or permission is missing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        file_bytes: int = FILE_BYTES,
        sizes: Sequence[int] = SIZES,
        limit_s: float = 5.0,
        seed: int = 0,
        progress: Progress = unwatched,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not 0 < max(sizes) <= file_bytes:
            raise InvalidArgument(f"file_bytes is {file_bytes}; give at least {max(sizes)}, the largest request.")
        self._limit_s, self._progress, self._clock = limit_s, progress, clock
        self._random = np.random.default_rng(seed)
        self._buffers = cycle([allocate_buffer(buffer_bytes(max(sizes))) for _ in range(_BUFFERS)])
        self._taken: dict[int, list[float]] = {nbytes: [] for nbytes in sizes}
        self._gains: list[float] = []
        self._done = 0.0
        self._file = ProbeFile(
            folder,
            file_bytes,
            least_bytes=min(_PLACES * max(sizes), file_bytes),
            random=self._random,
            progress=lambda share: progress(_WRITING_SHARE * share),
            clock=clock,
        )

    def probe(self, share: float = 1.0) -> None:
        """Measure one part, for a ``share`` of the time limit."""
        done, reading = self._done, 1 - _WRITING_SHARE
        time_requests(
            self._read,
            self._file.nbytes,
            self._taken,
            share=share,
            limit_s=self._limit_s,
            random=self._random,
            progress=lambda part: self._progress(_WRITING_SHARE + reading * min(done + share * part, 1.0)),
            clock=self._clock,
        )
        rounds = math.ceil(share * ROUNDS_AT_ONCE)
        self._gains += _gains_at_once(self._file, max(self._taken), rounds, self._random, self._clock)
        self._done += share

    @property
    def result(self) -> DiskProbe:
        """Costs fitted to all parts so far."""
        times = request_times(self._taken)
        costs = DiskCosts.fitted((each.nbytes, each.seconds) for each in times)
        at_once = median(self._gains) if self._gains else 1.0
        return DiskProbe(times, costs, self._file.direct, self._file.nbytes, at_once)

    def close(self) -> None:
        """Close the file, which frees its space."""
        self._file.close()

    def _read(self, offset: int, nbytes: int) -> float:
        into = next(self._buffers)
        self._file.prepare()
        began_s = self._clock()
        self._file.read(offset, nbytes, into)
        return self._clock() - began_s


def _gains_at_once(
    file: ProbeFile, nbytes: int, rounds: int, random: np.random.Generator, clock: Callable[[], float]
) -> list[float]:
    """Return the speed-up of requests of ``nbytes`` through lanes, in each round.

    It may be below 1: parallel parts disturb each other if a single request already uses the whole bandwidth. Reads
    with and without lanes take turns, because the speed of the disk may change at any time.
    """
    if not ReadLanes.supported():
        return []
    buffers = [allocate_buffer(buffer_bytes(nbytes)) for _ in range(_IN_A_ROW)]
    places = (file.nbytes - nbytes) // ALIGNMENT + 1
    gains = []
    with closing(ReadLanes(_IN_A_ROW)) as lanes:

        def read_alone(offsets: list[int]) -> None:
            for offset, into in zip(offsets, buffers, strict=True):
                file.read(offset, nbytes, into)

        def read_in_lanes(offsets: list[int]) -> None:
            reads = [file.lane_read(offset, nbytes, into) for offset, into in zip(offsets, buffers, strict=True)]
            for started in [lanes.start([read]) for read in reads]:
                started.wait()

        for _ in range(rounds):
            taken_s = []
            for read in (read_alone, read_in_lanes):
                offsets = (random.integers(places, size=_IN_A_ROW) * ALIGNMENT).tolist()
                file.prepare()
                began_s = clock()
                read(offsets)
                taken_s.append(clock() - began_s)
            gains.append(taken_s[0] / taken_s[1] if min(taken_s) > 0 else 1.0)
    return gains


def time_requests(
    read: Callable[[int, int], float],
    file_bytes: int,
    taken: Mapping[int, list[float]],
    *,
    share: float = 1.0,
    limit_s: float,
    random: np.random.Generator,
    progress: Progress = unwatched,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Time ``read(offset, nbytes)`` at random aligned places, for a ``share`` of the limit; add to ``taken``, by size.

    All sizes take turns in random order. A disturbance then slows down some requests of each size, which medians
    ignore, and not all requests of one size.
    """
    began_s, most_rounds = clock(), math.ceil(share * _MOST_ROUNDS)
    for done in range(most_rounds):
        spent = (clock() - began_s) / (share * limit_s)
        if done >= _LEAST_ROUNDS and spent >= 1:
            break
        progress(min(max(done / most_rounds, spent), 1.0))
        for nbytes in random.permutation(list(taken)).tolist():
            places = (file_bytes - nbytes) // ALIGNMENT + 1
            taken[nbytes].append(read(int(random.integers(places)) * ALIGNMENT, nbytes))
    progress(1.0)


def request_times(taken: Mapping[int, list[float]]) -> tuple[RequestTime, ...]:
    """Return the median time of the requests of each size."""
    return tuple(RequestTime(nbytes, median(seconds), len(seconds)) for nbytes, seconds in taken.items())
