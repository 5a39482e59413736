"""Measures what a disk takes for requests of several sizes, and what follows for a seek and a byte."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import numpy as np

from semistream.errors import InvalidArgument
from semistream.relation.disk import ALIGNMENT, allocate_buffer, buffer_bytes
from semistream.relation.disk_costs import DiskCosts
from semistream.relation.read_lanes import ReadLanes
from semistream.tuning.probe_file import ProbeFile
from semistream.tuning.progress import Progress, unwatched

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
