"""What belongs to one process: locks, released by the operating system when it dies, and what a fork may not use."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from semistream.errors import JoinInherited, RelationLocked, SemistreamError
from semistream.storage.disk_errors import disk_errors

WAIT_S = 60.0
"""Seconds that a writer of a relation waits for another one."""

BUILDER_LOCK = "lock"
"""Name of the lock file in a folder of copies."""


class OwnProcess:
    """The process that started threads or reads. A fork of it inherits the objects, but neither threads nor reads."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """True in a fork."""
        return os.getpid() != self._process

    def require(self) -> None:
        """Raise `JoinInherited` in a fork."""
        if self.forked:
            raise JoinInherited(
                f"process {self._process} opened this join, and its fork, process {os.getpid()}, cannot use it. Open a "
                "join of its own there, or start the process by multiprocessing's 'spawn' or 'forkserver'."
            )


@contextmanager
def process_lock(path: Path, refusal: Callable[[str], SemistreamError], *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file ``path`` for the duration of the context.

    If another process still holds it after ``wait_s`` seconds, raise the error that ``refusal`` builds from that
    process's id. The kernel releases the lock when the process ends, however it ends. The file stays, with the id of
    its last owner.
    """
    lock: BaseFileLock = FileLock(path, thread_local=False)  # a SoftFileLock where the system has no locks
    try:
        with disk_errors(path, "locked"):
            lock.acquire(timeout=wait_s)
    except Timeout:
        raise refusal(_owner(path)) from None
    try:
        if not isinstance(lock, SoftFileLock):  # which writes an id of its own
            with suppress(OSError):  # on Windows, where the locked file may not be written to
                path.write_text(f"{os.getpid()}\n")
        yield
    finally:
        lock.release()


def _owner(path: Path) -> str:
    """Return the id of the process that holds a lock file."""
    try:
        return (path.read_text(errors="replace").split() or ["unknown"])[0]
    except OSError:
        return "unknown"


@contextmanager
def writer_lock(folder: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the writer lock of the relation in ``folder``, or raise `RelationLocked` after ``wait_s`` seconds."""

    def refusal(owner: str) -> RelationLocked:
        waited = f" after {wait_s:g} s" if wait_s else ""
        return RelationLocked(
            f"{folder} is being written by process {owner}{' still' * bool(wait_s)}{waited}. Wait until it finishes, "
            "or stop it."
        )

    with process_lock(folder / "lock", refusal, wait_s=wait_s):
        yield


@contextmanager
def builder_lock(folder: Path, wait_s: float = math.inf) -> Iterator[None]:
    """Hold the lock of those who build copies in ``folder``, or raise `RelationLocked` after ``wait_s`` seconds."""

    def refusal(owner: str) -> RelationLocked:
        return RelationLocked(f"process {owner} is building in {folder}. Wait until it finishes, or stop it.")

    with process_lock(folder / BUILDER_LOCK, refusal, wait_s=-1 if math.isinf(wait_s) else wait_s):
        yield
