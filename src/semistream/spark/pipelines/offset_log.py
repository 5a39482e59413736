"""Row counts of batches from Spark's offset log, before the rows are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


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
