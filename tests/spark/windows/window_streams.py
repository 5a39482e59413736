"""Two streams as folders of Parquet files, a window join of them on Spark, and DuckDB's join as the oracle."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.spark import WindowMetrics, window_join, window_metrics
from semistream.windows.streams.event_time import SIDES

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
START_S = 1_700_000_000
FAR_S = 10_000  # a row so much later has all others leave their windows
SCHEMA = {side: f"name string, n int, at timestamp, {side} long" for side in SIDES}


class TwoStreams:
    """Rows of two streams with keys of two columns, written file by file; times are within ten seconds of order."""

    def __init__(self, folder: Path, *, seed: int, keys: int = 12) -> None:
        self.folder = folder
        self.tables: dict[str, list[pa.Table]] = {side: [] for side in SIDES}
        self._keys = keys
        self._rng = np.random.default_rng(seed)
        for side in SIDES:
            (folder / side).mkdir(parents=True)

    def grow(self, rows: int = 60) -> None:
        """Another file of each stream, for the next 100 seconds."""
        begin = 100 * len(self.tables["left"])
        for side in SIDES:
            number = np.minimum(self._rng.zipf(1.4, rows), self._keys)
            time = begin + np.sort(self._rng.integers(0, 100_000, rows)) / 1000 - self._rng.integers(0, 9, rows)
            names = [None if self._rng.random() < 0.03 else f"k{n}" for n in number.tolist()]
            self.write(side, names, number % 3, np.maximum(time, begin - 5))

    def end(self) -> None:
        """Late rows without partners: the watermark passes all other rows, which are joined and expire."""
        for side in SIDES:
            self.write(side, [f"end of {side}"], [0], [FAR_S])

    def write(self, side: str, names: list[str | None], n: Any, seconds: Any) -> None:
        """A file with these rows."""
        at = np.round((np.asarray(seconds) + START_S) * 1_000_000).astype(np.int64)
        first = 1000 * len(self.tables[side])
        table = pa.table(
            {
                "name": pa.array(names, pa.string()),
                "n": pa.array(n, pa.int32()),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                side: np.arange(first, first + len(names)),
            }
        )
        number = len(self.tables[side])
        self.tables[side].append(table)
        hidden, path = self.folder / side / f"_{number}", self.folder / side / f"{number:03d}.parquet"
        pq.write_table(table, hidden)
        os.utime(hidden, (START_S + number, START_S + number))  # Spark takes files by their times
        hidden.rename(path)

    def exact(self, window_s: dict[str, int]) -> Counter[tuple[int, int]]:
        """Numbers of the rows that DuckDB joins."""
        connection = duckdb.connect()
        for side in SIDES:
            connection.register(f"{side}_rows", pa.concat_tables(self.tables[side]))
        found = connection.execute(
            'SELECT l."left", r."right" FROM left_rows l JOIN right_rows r ON l.name = r.name AND l.n = r.n '
            f"WHERE l.at < r.at + INTERVAL {window_s['right']} SECOND "
            f"AND r.at < l.at + INTERVAL {window_s['left']} SECOND"
        )
        return Counter(found.fetchall())


def run(df: Any, folder: Path, name: str) -> list[WindowMetrics]:
    """Run a query until its streams have nothing new; results are added to Parquet files in ``folder / name``."""
    query = (
        df.writeStream.format("parquet")
        .option("path", str(folder / name))
        .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [found for report in query.recentProgress if (found := window_metrics(report))]


def results(spark: Any, folder: Path, name: str) -> Counter[tuple[int, int]]:
    """Numbers of the rows that a query has joined."""
    return Counter((row["left"], row["right"]) for row in spark.read.parquet(str(folder / name)).collect())


def joined(folder: Path, spark: Any, *, files: int = 1, **arguments: Any) -> Any:
    """The window join of the two streams in a folder by both key columns, with so many files in a micro-batch."""
    left, right = (
        spark.readStream.schema(SCHEMA[side])
        .option("maxFilesPerTrigger", files)
        .parquet(str(folder / side))
        .withWatermark("at", "10 seconds")
        for side in SIDES
    )
    return window_join(left, right, on=["name", "n"], **arguments)
