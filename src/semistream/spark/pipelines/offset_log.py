"""Spark's offset log: how many rows a batch of the source has, before it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rows_by_offsets(checkpoint: Path, source_batch: int) -> int | None:
    """Offsets of a batch beyond those of the batch before, for sources that number their rows.

    A topic may have offsets without a message: there are no more rows than that. None if it is not known, as of the
    first batch; ``checkpoint`` is Spark's folder.
    """
    now = _offsets(checkpoint / "offsets" / str(source_batch))
    before = _offsets(checkpoint / "offsets" / str(source_batch - 1))
    if now is None or before is None or set(before) - set(now):
        return None
    return sum(max(end - before.get(part, 0), 0) for part, end in now.items())


def _offsets(path: Path) -> dict[str, int] | None:
    """The numbers of an entry of Spark's log, by where they stand in it."""
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
