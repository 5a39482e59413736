"""Capacity of a pipeline: rows per second without shedding, in batches as long as those of a steady overload."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.harness.workload import stream_batches
from semistream.pipelines.batch.batch_report import BatchReport
from semistream.spark.pipelines.pipeline import Pipeline

_FILE_ROWS, _CONTENTS = 1_000_000, 4  # rows of a file, and number of distinct files
_ROUGH_FILES, _ROUGH_BATCHES, _BATCHES = 8, 4, 3  # the first batch of each run is not counted


class Capacity:
    """Repeated measurement of the capacity, because the speed of a shared machine varies.

    ``spec`` builds the spec of a pipeline without a latency goal, from the folder of its source and one for everything
    else. In larger batches more rows share a pass over R, so the batches are sized to take about ``batch_s`` seconds.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: Callable[[Path, Path], dict[str, Any]],
        folder: Path,
        *,
        keys: int,
        scale: float,
        batch_s: float,
    ) -> None:
        self._spark, self._spec, self._folder = spark, spec, folder
        self._contents = folder / "contents"
        self._contents.mkdir(parents=True)
        rows = max(int(_FILE_ROWS * scale), 25_000)
        for number, batch in enumerate(stream_batches(keys, rows, _CONTENTS)):
            pq.write_table(pa.Table.from_batches([batch]), self._contents / f"{number}.parquet")
        rough = statistics.median(self._run(_ROUGH_FILES, _ROUGH_BATCHES))
        self._files = max(round(rough * batch_s / rows), 1)
        self.rates: list[float] = []

    def measure(self) -> float:
        """Return the current rows per second."""
        found = self._run(self._files, _BATCHES)
        self.rates += found
        return statistics.median(found)

    def _run(self, files: int, batches: int) -> list[float]:
        """Return rows per second of each batch of ``files`` files, from plan to commit, without the first batch."""
        base = self._folder / "run"
        source = base / "source"
        source.mkdir(parents=True)
        for number in range(files * batches):
            (source / f"{number:06d}.parquet").hardlink_to(self._contents / f"{number % _CONTENTS}.parquet")
        spec = self._spec(source, base)
        spec["source"]["files_per_batch"] = files
        reports: list[BatchReport] = []
        Pipeline.from_dict(spec).run(self._spark, once=True, watch=reports.append)
        shutil.rmtree(base)
        return [report.rows_per_s for report in reports[1:]]
