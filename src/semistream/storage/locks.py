"""Locks between processes. The operating system releases a lock when its process dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from semistream.errors import RelationLocked, SemistreamError


@contextmanager
def process_lock(path: Path, refusal: Callable[[str], SemistreamError]) -> Iterator[None]:
    """Hold the lock file ``path`` for the duration of the context.

    If another process holds it, raise the error that ``refusal`` builds from that process's id. The kernel releases
    the lock when the process ends, however it ends.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise refusal(owner) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the writer lock of the relation in ``folder``, or raise `RelationLocked`."""

    def refusal(owner: str) -> RelationLocked:
        return RelationLocked(f"{folder} is being written by process {owner}. Wait until it finishes, or stop it.")

    with process_lock(folder / "lock", refusal):
        yield
