"""RunningPipeline: a pipeline that waits for files, and processes each as one batch."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.harness.local_spark import CORES
from semistream.pipelines.batch.batch_report import BatchReport
from semistream.spark.pipelines.pipeline import Pipeline

_MOST_S = 120.0  # timeout of a batch


class RunningPipeline:
    """Runs a pipeline in a thread until it is closed; it reads files from the folder ``source``."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any], source: Path) -> None:
        source.mkdir(parents=True)
        self._source = source
        self._files = 0
        self._reports: Queue[BatchReport] = Queue()
        self._ending = Event()
        given = {"watch": self._reports.put, "stopping": self._ending.is_set}
        self._thread = Thread(target=Pipeline.from_dict(spec).run, args=(spark,), kwargs=given, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the pipeline, and wait until it has ended."""
        self._ending.set()
        self._thread.join()

    def take_in(self, batch: pa.RecordBatch) -> BatchReport:
        """Add a file with these rows, and wait until they are in their tables."""
        hidden = self._source / f"_{self._files:06d}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), hidden, row_group_size=-(-batch.num_rows // CORES))
        hidden.rename(self._source / hidden.name[1:])
        self._files += 1
        return self._reports.get(timeout=_MOST_S)


def python_seconds() -> float:
    """Return processor seconds of this process and its Python workers, without the JVM, which does other work too."""
    own = psutil.Process()
    taken_s = 0.0
    for each in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # Spark also starts short-lived processes
            times = each.cpu_times()
            taken_s += times.user + times.system if each.name().startswith("python") else 0.0
    return taken_s
