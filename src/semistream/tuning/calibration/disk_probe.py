"""Measures what a disk takes for requests of several sizes, and what follows for a seek and a byte.

ProbeFile: random bytes on a disk that is to be measured, without a name, gone whatever happens.
"""

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
_SPARED = 4  # one part in so many of what is free may be taken
_WRITING_LIMIT_S = 10.0
_FULL = {errno.ENOSPC, errno.EDQUOT}


class ProbeFile:
    """A file of up to ``file_bytes`` in a folder, at least ``least_bytes``: less if little is free or writing is slow.

    Its name is gone as soon as it is open, so nothing stays behind, even if the process is killed. Bytes are random, as
    some file systems compress, and forced to the disk. Reads are direct where the file system can; else what the
    system's cache holds of the file is dropped before each. `CalibrationError` if there is no room or no permission.
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
                self.read(0, 1, allocate_buffer(buffer_bytes(1)))  # which opens the file, for as long as it is needed
            finally:
                self._path.unlink()
            began_s = clock()
            while self.nbytes < wanted_bytes and (self.nbytes < least_bytes or clock() - began_s < _WRITING_LIMIT_S):
                progress(self.nbytes / wanted_bytes)
                self._write(min(_PIECE_BYTES, wanted_bytes - self.nbytes), random)
            self._opened = opened.pop_all()

    @property
    def direct(self) -> bool:
        """Whether reads pass the system's cache by."""
        return isinstance(self._disk, DirectDisk)

    def prepare(self) -> None:
        """Have the next read come from the disk; to be done before each."""
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, offset: int, nbytes: int, into: Bytes) -> None:
        """Read a part of the file, as operators read R."""
        self._disk.read(self._path, offset, nbytes, pages=1, into=into)

    def lane_read(self, offset: int, nbytes: int, into: Bytes) -> Read:
        """The same, for a lane to do."""
        request = self._disk.request(self._path, offset, nbytes, pages=1)
        descriptor, start, length, _ = request.system_read()
        return descriptor, into.ctypes.data, length, start

    def close(self) -> None:
        """Give the space back."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _fitting(self, file_bytes: int) -> int:
        """Bytes of the file, so that most of what is free stays so."""
        fitting = min(file_bytes, shutil.disk_usage(self._folder).free // _SPARED)
        if fitting < self._least_bytes:
            raise self._no_space()
        return fitting

    def _no_space(self) -> CalibrationError:
        free = format_bytes(shutil.disk_usage(self._folder).free)
        least, wanted = format_bytes(self._least_bytes), format_bytes(_SPARED * self._least_bytes)
        return CalibrationError(
            f"{self._folder} has {free} free, and measuring its disk takes {wanted}: a file of {least}, for some "
            "seconds, that leaves most of the room to others. Make room there, or name another folder of the disk."
        )

    def _made(self) -> tuple[int, Path]:
        try:
            descriptor, name = tempfile.mkstemp(prefix=".semistream-calibrate-", suffix=".tmp", dir=self._folder)
        except OSError as error:
            raise CalibrationError(
                f"{self._folder} cannot be written to ({error.strerror}), and measuring its disk takes a temporary "
                "file. Name another folder of the same disk: what is measured holds for all of it."
            ) from error
        return descriptor, Path(name)

    def _write(self, nbytes: int, random: np.random.Generator) -> None:
        """Write so many bytes more and wait until they are on the disk, so that it is seen how long writing takes."""
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
"""Bytes of a request: from a page of the papers to the longest run that operators read."""
FILE_BYTES = 256 << 20
_PLACES = 8  # for the largest requests, at least: of a smaller file too much is in a cache of the disk's own
_WRITING_SHARE = 0.3  # of the work
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 400
_BUFFERS = 3  # in turns, as joins have several: one that is read to again and again stays in the processor's cache
_IN_A_ROW = 4  # requests of the largest size, as a sweep asks for runs
ROUNDS_AT_ONCE = 40
"""How often so many are timed, in both ways."""


@dataclass(frozen=True)
class RequestTime:
    """What a request of ``nbytes`` at a random place takes: the median of ``requests``."""

    nbytes: int
    seconds: float
    requests: int


@dataclass(frozen=True)
class DiskProbe:
    """What was measured in a file of ``file_bytes``, and the costs that come nearest to it.

    ``direct`` says whether reads passed the system's cache by (O_DIRECT), as those of joins do where they can. Of large
    requests, it gives ``at_once`` times as many bytes in a second if it is asked for parts of them at once, and for the
    next one right after (`ReadLanes`).
    """

    times: tuple[RequestTime, ...]
    costs: DiskCosts
    direct: bool
    file_bytes: int
    at_once: float = 1.0

    @property
    def note(self) -> str | None:
        """What a reader of the times has to know, if anything."""
        if self.direct:
            return None
        return "the file system takes no direct reads (O_DIRECT): these went through the system's cache"


class DiskProber:
    """Measures the disk that holds a folder, in parts: what else is to be measured comes between them.

    A disk that others use too may be slow for some seconds. Parts that lie apart do not all lie in such a time. They
    take about ``limit_s`` in all, and the file (`ProbeFile`) what it takes to write ``file_bytes``. It leaves nothing
    behind. `CalibrationError` if there is no room for it or no permission.
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
            raise InvalidArgument(f"file_bytes is {file_bytes}; requests of {max(sizes)} bytes need at least as many.")
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
        """Measure one part, that takes a share of the time."""
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
        """What follows from all parts so far."""
        times = request_times(self._taken)
        costs = DiskCosts.fitted((each.nbytes, each.seconds) for each in times)
        at_once = median(self._gains) if self._gains else 1.0
        return DiskProbe(times, costs, self._file.direct, self._file.nbytes, at_once)

    def close(self) -> None:
        """Give the space of the file back."""
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
    """How many times as fast requests of a size are done if lanes read them, one right after the other; in each round.

    That may be less than once: parts of them that are asked for at once get into each other's way where one request
    alone already has all that the disk can give. Both ways take turns, as the disk may be faster in the next moment.
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
    """Add to those ``taken``, by size, the seconds that ``read(offset, nbytes)`` gives at random aligned places of a
    file, in a ``share`` of the limit.

    All sizes take turns, in any order: while a disk is busy with something else, some requests of each size are slow,
    which their medians do not show, and not all of one.
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
    """The medians of the seconds of requests, by size."""
    return tuple(RequestTime(nbytes, median(seconds), len(seconds)) for nbytes, seconds in taken.items())
