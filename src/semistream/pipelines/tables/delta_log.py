"""DeltaLog: the log of a Delta table as files, made durable by syncs and mended after a power cut."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.storage.local_files import sync_file, sync_folder

_LOG = logging.getLogger(__name__)
_LOG_FOLDER, _LAST_CHECKPOINT, _ASIDE = "_delta_log", "_last_checkpoint", ".torn"

Action = dict[str, Any]


class DeltaLog:
    """Log of the Delta table in the folder ``table``.

    Nobody else syncs it: neither delta-rs nor Spark. After a power cut, its newest entries may be gone, empty, or cut
    off, and then no reader can open the table. `sync` makes them durable. `mend` moves torn ones aside.
    """

    def __init__(self, table: Path) -> None:
        self.folder = table / _LOG_FOLDER
        self._synced = -1  # all entries up to this version are durable; -1: unknown

    @property
    def begun(self) -> bool:
        """True if the log has an entry."""
        return bool(self._versions())

    def sync(self, version: int) -> None:
        """Force the entries and checkpoints up to ``version`` to the disk that this object has not synced before."""
        if self._synced >= version:
            return
        fresh = self._versions() if self._synced < 0 else list(range(self._synced + 1, version + 1))
        for number in fresh:
            with suppress(FileNotFoundError):  # the table's own housekeeping removes old entries
                sync_file(self._entry(number))
        for path in self._checkpoints():
            if _version(path) > self._synced:
                sync_file(path)
                sync_file(self.folder / _LAST_CHECKPOINT)
        sync_folder(self.folder)
        self._synced = version

    def mend(self) -> bool:
        """Move torn entries and checkpoints aside; raise `PipelineError` for a torn entry with whole ones after it.

        A batch with a torn entry was never called done, since entries are synced before: it is committed again. Return
        True if no whole entry is left.
        """
        last = self.folder / _LAST_CHECKPOINT
        if last.exists() and not _is_json(last.read_bytes()):
            last.unlink()  # only a hint: readers that miss it list the folder
        for path in self._checkpoints():
            if not _is_parquet(path):
                self._set_aside(path)
                last.unlink(missing_ok=True)
        base = max((_version(path) for path in self._checkpoints()), default=-1)
        whole, torn = base >= 0, False
        later = False
        for version in sorted((version for version in self._versions() if version > base), reverse=True):
            path = self._entry(version)
            if self._actions(path) is not None:
                whole = later = True
            elif later:
                raise PipelineError(
                    f"{path} is damaged, and later entries of the log are not: the Delta table cannot be read. Restore "
                    "the entry from a copy, or move it and all later ones to another folder."
                )
            else:
                self._set_aside(path)
                torn = True
        return torn and not whole

    def withdraw(self, app: str, batch: int, files: set[str]) -> bool:
        """Move the entry of a batch aside if it lacks one of ``files``: a power cut has cut it off between two lines.

        ``app`` names the application transaction. Return True if the entry was moved.
        """
        versions = self._versions()
        for version in reversed(versions):
            actions = self._actions(self._entry(version)) or []
            if any(txn.get("appId") == app and txn.get("version") == batch for txn in _each(actions, "txn")):
                if files <= _added(actions):
                    return False
                if version != versions[-1]:
                    raise PipelineError(
                        f"{self._entry(version)} lacks files of batch {batch}, and later entries of the log exist. "
                        "Restore the entry from a copy."
                    )
                self._set_aside(self._entry(version))
                return True
        return False

    def added(self) -> Iterator[str]:
        """Yield the files that entries have added, including those that a later one removed."""
        for version in self._versions():
            yield from _added(self._actions(self._entry(version)) or [])

    def _versions(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit())

    def _entry(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def _checkpoints(self) -> list[Path]:
        return [path for path in self.folder.glob("*.checkpoint*.parquet") if path.name[:20].isdigit()]

    def _actions(self, path: Path) -> list[Action] | None:
        """Return the actions of an entry; None if it is torn."""
        lines = path.read_bytes().splitlines()
        try:
            actions = [json.loads(line) for line in lines if line.strip()]
        except (ValueError, RecursionError):
            return None
        return actions if actions and all(isinstance(action, dict) for action in actions) else None

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(f".{path.name}{_ASIDE}")
        _LOG.warning("%s is torn, as after a power cut; it is now %s", path, aside.name)
        path.replace(aside)
        sync_folder(self.folder)


def _version(path: Path) -> int:
    return int(path.name[:20])


def _each(actions: list[Action], kind: str) -> Iterator[Action]:
    return (action[kind] for action in actions if isinstance(action.get(kind), dict))


def _added(actions: list[Action]) -> set[str]:
    return {unquote(str(added["path"])) for added in _each(actions, "add")}


def _is_json(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True
