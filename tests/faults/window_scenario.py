"""A window join on Spark with an archive, run by drivers that tests kill."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from semistream.spark import repair_window_join
from tests.spark.windows.window_streams import PROVIDER, ROCKSDB, TwoStreams, joined, run

WINDOW_S = {"left": 40, "right": 15}


def run_window_join(spark: Any, folder: str, name: str, files: int = 1) -> None:
    """Join the new rows in the streams of a folder, in less memory than the windows need."""
    spark.conf.set(PROVIDER, ROCKSDB)
    window = {side: f"{seconds} seconds" for side, seconds in WINDOW_S.items()}
    archive = Path(folder) / f"{name}-archive"
    df = joined(Path(folder), spark, files=files, window=window, memory=40, archive=archive)
    run(df, Path(folder), name)


class WindowScenario:
    """The two streams, and the results of queries over them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.streams = TwoStreams(folder, seed=seed)

    def spec(self, name: str, files: int = 1) -> dict[str, Any]:
        """Return the task of a driver; ``name`` names the query's table, archive and checkpoint."""
        return {"window_join": {"folder": str(self.folder), "name": name, "files": files}}

    def is_at_work(self, name: str, batch: int) -> bool:
        """Return True if a query has begun a micro-batch."""
        return (self.folder / f"{name}-checkpoint" / "offsets" / str(batch)).exists()

    def results(self, name: str) -> Counter[tuple[int, int]]:
        """Numbers of the rows that a query has joined, from the files that its sink has committed."""
        committed = self.folder / name / "_spark_metadata"
        files = {
            line.split('"path":"file://')[1].split('"')[0]
            for log in committed.iterdir()
            if not log.name.startswith(".")
            for line in log.read_text().splitlines()
            if '"path"' in line
        }
        rows = (row for file in files for row in pq.read_table(file, columns=["left", "right"]).to_pylist())
        return Counter((row["left"], row["right"]) for row in rows)

    def missing(self, name: str) -> Counter[tuple[int, int]]:
        """Return the results that the archive of a query gives."""
        batches = repair_window_join(self.folder / f"{name}-archive")
        return Counter((row["left"], row["right"]) for batch in batches for row in batch.to_pylist())

    def exact(self) -> Counter[tuple[int, int]]:
        """Return DuckDB's join."""
        return self.streams.exact(WINDOW_S)
