"""Snapshots of a source's table, one after the other, and the changes to report between them, each once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.relation import Relation
from tests.faults.backlog import FILES_AHEAD, batches_done
from tests.spark.pipelines.warehouse import put, read_table

_ROWS = 150


class SnapshotScenario:
    """A pipeline that classifies the rows of whole snapshots. Python dictionaries give the expected changes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._generator = np.random.default_rng(seed)
        self._items: dict[int, str] = {}
        self._expected: Counter[Any] = Counter()
        self._shown: Counter[Any] = Counter()
        self._snapshots = 0
        (folder / "snapshots").mkdir(parents=True)

    def spec(self, retry_for: str = "") -> dict[str, Any]:  # noqa: ARG002 (nothing waits here)
        """The pipeline."""
        return {
            "name": "items",
            "source": {
                "format": "parquet", "path": str(self.folder / "snapshots"), "snapshots": "files",
                "schema": {"id": "bigint", "value": "string"},
            },
            "steps": [{"changes": {"relation": str(self.folder / "last"), "key": "id"}}],
            "sink": {"path": str(self.folder / "sink")},
            "quarantine": {"path": str(self.folder / "quarantine"), "format": "parquet"},
            "checkpoint": str(self.folder / "checkpoint"),
            "memory": "32MB",
            "every": "100ms",
        }  # fmt: skip

    def grow(self) -> None:
        """More snapshots until some wait."""
        while self._snapshots - batches_done(self.folder) < FILES_AHEAD:
            self.put_snapshot()

    def put_snapshot(self) -> None:
        """One in which some items are new, some have another value, some are gone."""
        draw, number = self._generator, self._snapshots
        now = dict(self._items)
        for item in draw.integers(_ROWS, size=20).tolist():
            if now.pop(item, None) is not None:
                self._expected[item, self._items[item], "deleted"] += 1
        for item in draw.integers(_ROWS, size=60).tolist():
            if item in self._items and item not in now:
                continue
            now[item] = f"{number}-{draw.integers(3)}"
        for item, value in now.items():
            before = self._items.get(item)
            if before is None:
                self._expected[item, value, "inserted"] += 1
            elif before != value:
                self._expected[item, value, "updated"] += 1
        table = pa.table({"id": pa.array(now, pa.int64()), "value": pa.array(now.values(), pa.string())})
        put(table, self.folder / "snapshots" / f"{number:05d}.parquet")
        self._items, self._snapshots = now, number + 1

    def look(self) -> None:
        """Check that reported changes are still there, and that all of them are true."""
        now = Counter((row["id"], row["value"], row["change"]) for row in read_table(self.folder / "sink").to_pylist())
        assert not self._shown - now, f"changes were lost: {list((self._shown - now).items())[:5]}"
        assert not now - self._expected, f"changes that were none: {list((now - self._expected).items())[:5]}"
        self._shown = now

    def check(self) -> None:
        """All changes, and the relation that must be the last snapshot."""
        self.look()
        assert not self._expected - self._shown, f"not told: {list((self._expected - self._shown).items())[:5]}"
        assert read_table(self.folder / "quarantine").num_rows == 0
        rows = Relation.open(self.folder / "last").scan().read_all().to_pylist()
        assert Counter((row["id"], row["value"]) for row in rows) == Counter(self._items.items())
