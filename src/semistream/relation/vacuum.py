"""Remove old versions of a relation, and files that no remaining version needs."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from semistream.errors import InvalidArgument, RelationLocked
from semistream.relation.format.manifest import (
    CURRENT,
    DATA,
    LMDB,
    VERSIONS,
    get_current,
    list_versions,
    lmdb_folder,
    manifest_name,
    match_counts_name,
    read_manifest,
)
from semistream.relation.format.pins import read_pins, remove_old_pins
from semistream.storage import locks
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import leftovers, sync_folder
from semistream.storage.locks import BUILDER_LOCK, builder_lock, writer_lock


def vacuum_relation(folder: Path, keep: int, wait_s: float | None = None) -> list[str]:
    """Keep the last ``keep`` versions, and those pinned; return the removed files' names, relative to the folder.

    Files left behind by dead writers are removed too. Holding the writer lock proves that no writer is active. The last
    one may have died before its version was durable, and after a power cut the one before would be current again. So
    the current version is synced before files of others go.
    """
    if keep < 1:
        raise InvalidArgument(f"keep is {keep}; keep at least 1 version, the current one.")
    get_current(folder)
    with disk_errors(folder, "vacuumed"), writer_lock(folder, locks.WAIT_S if wait_s is None else wait_s):
        get_current(folder)  # raises if the pointer is damaged: list_versions would then include unpublished versions
        now, versions = time.time(), list_versions(folder)
        pinned = {pin.version for pin in read_pins(folder, now)}
        kept = sorted({*versions[-keep:], *pinned.intersection(versions)})
        needed = {manifest_name(v) for v in kept} | {f"{LMDB}/{BUILDER_LOCK}"}
        for version in kept:
            manifest = read_manifest(folder, version)
            needed |= manifest.file_names | {lmdb_folder(manifest), match_counts_name(manifest)}
        removed = [path.name for path in sorted(leftovers(folder / CURRENT))]
        for name in removed:
            (folder / name).unlink()
        removed += remove_old_pins(folder, now)
        sync_folder(folder)
        # Manifests first: neither a crash nor a power cut half-way must leave one that refers to removed files.
        removed += _remove_all_but(needed, folder, VERSIONS, "*.json")
        sync_folder(folder / VERSIONS)
        for part in (VERSIONS, DATA):
            removed += _remove_all_but(needed, folder, part)
        # A copy that a live process builds is left to it, and so are the old copies until the next vacuum.
        if (folder / LMDB).exists():
            with suppress(RelationLocked), builder_lock(folder / LMDB, wait_s=0):
                removed += _remove_all_but(needed, folder, LMDB)
    return removed


def _remove_all_but(needed: set[str], folder: Path, part: str, names: str = "*") -> list[str]:
    """Remove the files and folders in ``part`` with such ``names`` that are not needed; return what was removed."""
    unneeded = [path for path in sorted((folder / part).glob(names)) if f"{part}/{path.name}" not in needed]
    for path in unneeded:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return [f"{part}/{path.name}" for path in unneeded]
