"""Files and row counts of batches from Spark's offset log, before any row is read."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

_FILES = "/logOffset"  # place of a folder's offset


def rows_by_offsets(checkpoint: Path, source_batch: int) -> int | None:
    """Return the number of offsets in a batch, an upper bound of its rows, for sources that number their rows.

    A topic may have offsets without a message. None if the number is unknown, as for the first batch. ``checkpoint``
    is Spark's folder.
    """
    now = _offsets(checkpoint / "offsets" / str(source_batch))
    before = _offsets(checkpoint / "offsets" / str(source_batch - 1))
    if now is None or before is None or set(before) - set(now):
        return None
    return sum(max(end - before.get(part, 0), 0) for part, end in now.items())


def files_by_log(checkpoint: Path, source_batch: int) -> list[str] | None:
    """Return the URIs of a batch's files, for a stream of files in a folder; None if Spark's log does not tell.

    Spark writes the log before it calls the pipeline. To ask the batch itself would take a job of Spark's.
    """
    end = _offsets(checkpoint / "offsets" / str(source_batch))
    begin = {_FILES: -1} if source_batch == 0 else _offsets(checkpoint / "offsets" / str(source_batch - 1))
    if end is None or begin is None or {*begin, *end} != {_FILES}:
        return None
    found: list[str] = []
    for entry in range(begin[_FILES] + 1, end[_FILES] + 1):
        files = _logged(checkpoint / "sources" / "0", entry)
        if files is None:
            return None
        found += files
    return found


def last_file_entry(checkpoint: Path, source_batch: int) -> int | None:
    """Return the last entry of the log of files that a batch has, for a stream of files in a folder; else None."""
    offsets = _offsets(checkpoint / "offsets" / str(source_batch))
    return offsets[_FILES] if offsets is not None and set(offsets) == {_FILES} else None


def _logged(folder: Path, entry: int) -> list[str] | None:
    """Return the files of an entry in a source's log; None if it cannot be read. Every tenth is in a larger file."""
    for name in (f"{entry}", f"{entry}.compact"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            version, *lines = (folder / name).read_text().strip().splitlines()
            if version == "v1":
                return [str(file["path"]) for file in map(json.loads, lines) if file["batchId"] == entry]
    return None


def _offsets(path: Path) -> dict[str, int] | None:
    """Return the offsets in an entry of Spark's log, by their path in its JSON; None if it cannot be read."""
    try:
        *_, last = path.read_text().strip().splitlines()
        return dict(_numbers(json.loads(last), ""))
    except (OSError, ValueError):
        return None


def _numbers(value: Any, place: str) -> list[tuple[str, int]]:
    if isinstance(value, bool) or not isinstance(value, int | dict):
        raise ValueError(f"an offset is {value!r}")
    if isinstance(value, int):
        return [(place, value)]
    return [each for name, inner in value.items() for each in _numbers(inner, f"{place}/{name}")]
