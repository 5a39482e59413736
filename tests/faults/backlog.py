"""How far a killed pipeline is behind its source: what waits is enough for the next kill, and not more each time."""

from __future__ import annotations

from pathlib import Path

FILES_AHEAD = 2
"""Files that wait when a driver is started: one for the batch that the last one has begun, and one for the next."""


def batches_done(folder: Path) -> int:
    """How many batches of the source Spark has committed, in the checkpoint of the pipeline of a folder."""
    commits = folder / "checkpoint" / "spark" / "commits"
    numbers = [int(file.name) for file in commits.iterdir() if file.name.isdigit()] if commits.exists() else []
    return max(numbers, default=-1) + 1
