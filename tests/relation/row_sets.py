"""Folders for short-lived relations, and tables as multisets of rows."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

_IN_MEMORY = Path("/dev/shm")  # Hypothesis builds hundreds of relations; each one syncs its files


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, in memory where the system supports it."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def row_set(rows: pa.Table | pa.RecordBatchReader | Iterable[dict[str, Any]]) -> Counter[str]:
    """Count the occurrences of each row, in any order. NaN equals NaN here, and -0.0 differs from 0.0."""
    if isinstance(rows, pa.RecordBatchReader):
        rows = rows.read_all()
    if isinstance(rows, pa.Table):
        rows.validate(full=True)
        rows = rows.to_pylist()
    return Counter(map(repr, rows))


def files_under(folder: Path) -> set[str]:
    """Every file below a folder, by its path in it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
