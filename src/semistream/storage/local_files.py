"""Crash-safe file writes: write to a temporary name, fsync, rename, fsync the folder."""

from __future__ import annotations

import os
from pathlib import Path

_WINDOWS = os.name == "nt"


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


def leftovers(path: Path) -> set[Path]:
    """Return the temporary files left behind by writers of ``path`` that died."""
    return set(path.parent.glob(f".{path.name}.*.tmp"))


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically: readers see the old bytes or the new ones, even after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
