"""Writing that survives a crash: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sync_folder = sync_file  # a folder is synced like a file: what becomes durable are its names


def leftovers(path: Path) -> set[Path]:
    """Files that writers of ``path`` left behind when they died."""
    return set(path.parent.glob(f".{path.name}.*.tmp"))


def replace_file(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``: a reader sees the old bytes or the new ones, after a crash too."""
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
