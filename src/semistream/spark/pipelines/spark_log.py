"""SparkLog: Spark's record of a stream's batches, made durable by syncs and mended after a power cut."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from semistream.errors import PipelineError
from semistream.spark.pipelines.offset_log import last_file_entry
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import sync_file, sync_folder

_LOG = logging.getLogger(__name__)
_OFFSETS, _COMMITS, _SOURCES, _COMPACT = "offsets", "commits", "sources", ".compact"


class SparkLog:
    """Record in a ``folder`` of the offsets and files of each batch, and of the batches that have ended.

    Spark does not sync it. If a power cut took a batch from it that the ledger has, Spark would give the batch's number
    to other rows, and the ledger would skip them. So `sync` comes before the ledger records anything about a batch, and
    `mend` takes back what Spark has recorded since.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._durable: dict[Path, set[str]] = {}

    def sync(self) -> None:
        """Force all to the disk that Spark has recorded about batches to run, and that was not synced before."""
        with disk_errors(self.folder, "synced"):
            if not self._durable:
                sync_folder(self.folder.parent)
            for folder in (self.folder, self.folder / _SOURCES, self.folder / _OFFSETS, *self._sources()):
                names = {path.name for path in folder.glob("[!.]*")}
                fresh = names - self._durable.get(folder, set())
                for name in sorted(fresh):
                    if not (folder / name).is_dir():
                        with suppress(FileNotFoundError):  # Spark removes old entries
                            sync_file(folder / name)
                if fresh:
                    sync_folder(folder)
                self._durable[folder] = names

    def mend(self, planned: int | None) -> None:
        """Remove entries of batches after the last one that the ledger has ``planned``: a power cut may have torn some.

        Spark plans these batches again. If the ledger has none, only torn entries are removed. Raise `PipelineError` if
        the entry of the planned batch is damaged or missing.
        """
        offsets = self.folder / _OFFSETS
        for path in _torn(self.folder / _COMMITS):
            _remove(path)  # the batch comes again, and the ledger has its results
        if planned is None:
            for folder in (offsets, *self._sources()):
                for path in _torn(folder):
                    _remove(path)
            return
        if not (offsets / str(planned)).exists() or not _is_whole(offsets / str(planned)):
            raise _damaged(offsets / str(planned))
        for path in _entries(offsets):
            if _number(path) > planned:
                _remove(path)
        known = last_file_entry(self.folder, planned)
        for folder in self._sources():
            torn = _torn(folder)
            for path in _entries(folder):
                if known is not None and _number(path) > known:
                    _remove(path)
                elif path in torn:
                    raise _damaged(path)

    def _sources(self) -> list[Path]:
        return sorted((self.folder / _SOURCES).glob("*"))


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, from the newest on back."""
    entries = [path for path in folder.glob("[0-9]*") if path.name.removesuffix(_COMPACT).isdigit()]
    return sorted(entries, key=_number, reverse=True)


def _torn(folder: Path) -> list[Path]:
    """Return the last entries of a folder, from the newest on back to one that is whole."""
    return list(takewhile(lambda path: not _is_whole(path), _entries(folder)))


def _damaged(path: Path) -> PipelineError:
    return PipelineError(
        f"{path}, an entry of Spark's record of the source, is damaged or missing, and the ledger has its batch. "
        "Restore it from a copy, or give the pipeline a new checkpoint and new tables."
    )


def _remove(path: Path) -> None:
    _LOG.warning("%s is of a batch that was not planned before the end; it is removed, and comes again", path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
    sync_folder(path.parent)


def _number(path: Path) -> int:
    return int(path.name.removesuffix(_COMPACT))


def _is_whole(path: Path) -> bool:
    """True if the last line of an entry is whole: JSON, or a dash for no offset.

    Sources may write other entries, which begin with no version. Those are whole unless they are blank.
    """
    content = path.read_bytes().lstrip(b"\0")  # entries of Kafka's begin with a zero byte
    if not content.startswith(b"v"):
        return bool(content)
    last = content.partition(b"\n")[2].strip().rpartition(b"\n")[2]
    try:
        return last == b"-" or json.loads(last) is not None
    except ValueError:
        return False
