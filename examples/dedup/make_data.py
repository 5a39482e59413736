"""Data for dedup.yaml: files of events as JSON lines, many of them sent twice or more. Run it once, beside the file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

EVENTS, FILES, SENT = 2000, 6, 600
START = datetime(2026, 1, 1, 21, tzinfo=UTC)


def event(number: int) -> dict[str, object]:
    """An event; it is the same whenever it is sent. One in a hundred has a reading that cannot be."""
    return {
        "event_id": f"e-{number:06d}",
        "device": f"device {number % 17}",
        "reading": 999.0 if number % 100 == 99 else float(number % 90) / 2,
        "at": (START + timedelta(seconds=10 * number)).isoformat(),
    }


def make(folder: Path) -> None:
    """Files of events, each a draw with replacement."""
    events = folder / "data" / "events"
    events.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for number in range(FILES):
        sent = [event(int(each)) for each in rng.integers(0, EVENTS, SENT)]
        (events / f"{number:03d}.json").write_text("".join(json.dumps(each) + "\n" for each in sent))


if __name__ == "__main__":
    make(Path(__file__).parent)
