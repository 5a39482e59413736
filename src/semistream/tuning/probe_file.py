"""ProbeFile: random bytes on a disk that is to be measured, without a name, gone whatever happens."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from semistream.budget import format_bytes
from semistream.errors import CalibrationError
from semistream.kernels.types import Bytes
from semistream.relation.disk import DirectDisk, allocate_buffer, buffer_bytes, open_disk
from semistream.relation.read_lane import Read
from semistream.tuning.progress import Progress, unwatched

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
