"""Backlog of a killed pipeline: enough rows wait for the next kill, and not more each time."""

from __future__ import annotations

from pathlib import Path

FILES_AHEAD = 2
"""Files that wait when a driver is started: one for the batch that the last one has begun, and one for the next."""


def batches_done(folder: Path) -> int:
    """Return the number of source batches that Spark has committed, from the checkpoint in a folder."""
    commits = folder / "checkpoint" / "spark" / "commits"
    numbers = [int(file.name) for file in commits.iterdir() if file.name.isdigit()] if commits.exists() else []
    return max(numbers, default=-1) + 1
