"""Errors of the operating system, raised as `StorageError`: what could not be done, why, and the next step."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semistream.errors import SemistreamError, StorageError

_PERMISSION = "give this user permission to do so, or give another path"
_NEXT_STEPS = {
    errno.ENOSPC: "free some space, or give a path on another disk",
    errno.EDQUOT: "raise this user's quota, or give a path on another disk",
    errno.EROFS: "mount the file system writable, or give a path on another",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files of other processes, or raise the system's limit of open files",
    errno.EIO: "check the disk",
    errno.ENOENT: "restore it, or give another path",
    errno.ENOTDIR: "give a path of folders",
    errno.EISDIR: "give the path of a file",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "remove the link, or give another path",
    errno.ESTALE: "mount the file system again",
}


@contextmanager
def disk_errors(path: str | os.PathLike[str], doing: str = "written") -> Iterator[None]:
    """Raise every `OSError` within the context as a `StorageError` that names the file, or else ``path``.

    ``doing`` completes "cannot be ...". An error that semistream has raised on purpose passes unchanged.

    >>> with disk_errors("/proc/products"):
    ...     raise OSError(errno.EROFS, "Read-only file system")
    Traceback (most recent call last):
        ...
    semistream.errors.StorageError: /proc/products cannot be written: Read-only file system. Next: mount the file \
system writable, or give a path on another.
    """
    try:
        yield
    except SemistreamError:
        raise
    except OSError as error:
        if isinstance(error, BrokenPipeError | ConnectionError | InterruptedError | TimeoutError):
            raise
        raise _named(Path(path), doing, error) from error


def _named(path: Path, doing: str, error: OSError) -> StorageError:
    """Return the error with the file's name, the free space if that is short, and the next step."""
    file = path
    if isinstance(error.filename, str | bytes | os.PathLike) and not os.fsdecode(error.filename).endswith(".tmp"):
        file = Path(os.fsdecode(error.filename))
    why = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why += f" ({_free_bytes(path):,} bytes are free)"
    step = _NEXT_STEPS.get(error.errno or 0, "mend the cause and try again")
    return StorageError(error.errno, f"{file} cannot be {doing}: {why}. Next: {step}.")


def _free_bytes(path: Path) -> int:
    for folder in (path, *path.absolute().parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return 0
