"""Crash-safe file writes: write to a temporary name, fsync, rename, fsync the folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from semistream.storage.disk_errors import disk_errors

_WINDOWS = os.name == "nt"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def sync_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    descriptor = os.open(path, os.O_RDWR if _WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, where folders can be synced: not on Windows."""
    if not _WINDOWS:
        sync_file(path)


def make_folder(path: Path) -> bool:
    """Create a folder and its missing parents, so that they survive a power cut; return False if it was there.

    Each name is synced before a folder is made below it. So is the name of the last folder that was there: the process
    that made it may have died before it did so.
    """
    made = False
    with disk_errors(path, "created"):
        above = [path, *path.parents]
        missing = [folder for folder in above if not folder.exists()]
        with suppress(PermissionError):  # of a folder whose names only others can change
            sync_folder(above[min(len(missing), len(above) - 1)].parent)
        for folder in reversed(missing):
            try:
                folder.mkdir()
                made = folder == path
            except FileExistsError:
                if not folder.is_dir():
                    raise
            sync_folder(folder.parent)
    return made


def leftovers(path: Path) -> set[Path]:
    """Return the temporary files left behind by writers of ``path`` that died."""
    return set(path.parent.glob(f".{path.name}.*.tmp"))


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` at the end: readers see the old bytes or the new ones, even after a crash.

    It has a random temporary name until then. An error removes it, and leaves ``path`` as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with disk_errors(path):
        descriptor = os.open(temporary, _NEW_FILE, 0o666)  # less the user's mask; never through another's link
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` as `whole_file` does."""
    with whole_file(path) as file:
        file.write(content)
