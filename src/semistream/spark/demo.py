"""The Spark side of the demo: one streaming query with semistream's join, one with Spark's own, on the same orders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from semistream.errors import SemistreamError
from semistream.joins import MeshJoin
from semistream.joins.base import Results
from semistream.relation import Relation
from semistream.spark.join import join
from semistream.spark.session import local_session

_POLL_S = 0.2
_SUMMED = ("rows_in", "matched", "unmatched", "requests", "pages_seek", "pages_sequential", "bytes_read")


@dataclass(frozen=True)
class Batch:
    """A micro-batch that a query has finished. ``seconds`` is Spark's ``triggerExecution``: all that it took."""

    number: int
    rows: int
    seconds: float

    @property
    def rows_per_s(self) -> float:
        """Orders joined and written per second."""
        return self.rows / self.seconds


@dataclass(frozen=True)
class WorkerStats:
    """What the Python workers counted, all together; ``peak_bytes`` is the sum of the workers' peaks."""

    workers: int
    tasks: int
    rows_in: int
    matched: int
    unmatched: int
    requests: int
    pages_read: int
    bytes_read: int
    peak_bytes: int


class ReportingMeshJoin(MeshJoin):
    """MESHJOIN that appends a JSON line to a file of its worker in the folder ``report_to`` after every flush.

    On Spark a flush ends every task, so that is a line per task, with what was counted since the line before.
    """

    name = "mesh"

    def __init__(self, relation: Relation, stream_schema: pa.Schema, *, report_to: str, **options: Any) -> None:
        super().__init__(relation, stream_schema, **options)
        self._report_to = Path(report_to)
        self._reported: dict[str, int | float] = dict.fromkeys(_SUMMED, 0)

    def flush(self) -> Results:
        """Step until no tuple waits, then report."""
        yield from super().flush()
        counts = self.stats.as_dict()
        line = {name: counts[name] - self._reported[name] for name in _SUMMED}
        self._reported = {name: counts[name] for name in _SUMMED}
        line["peak_bytes"] = counts["peak_bytes"]
        with (self._report_to / f"worker-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_worker_stats(folder: Path) -> WorkerStats:
    """Add up the lines that `ReportingMeshJoin` left in a folder."""
    workers = [[json.loads(line) for line in path.open()] for path in sorted(folder.glob("worker-*.jsonl"))]
    lines = [line for worker in workers for line in worker]
    total = {name: sum(line[name] for line in lines) for name in _SUMMED}
    return WorkerStats(
        workers=len(workers),
        tasks=len(lines),
        rows_in=total["rows_in"],
        matched=total["matched"],
        unmatched=total["unmatched"],
        requests=total["requests"],
        pages_read=total["pages_seek"] + total["pages_sequential"],
        bytes_read=total["bytes_read"],
        peak_bytes=sum(max(line["peak_bytes"] for line in worker) for worker in workers),
    )


@contextmanager
def open_session(cores: int, *, log: Path, warehouse: Path) -> Iterator[SparkSession]:
    """A Spark on this machine whose every line of output, and its workers', goes to the file ``log``."""
    settings = {
        "spark.sql.shuffle.partitions": str(cores),  # Spark's default of 200 would slow its own join down
        "spark.sql.streaming.numRecentProgressUpdates": "1000000",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    with local_session("semistream demo", cores, log=log, settings=settings) as session:
        yield session


def read_orders(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Orders as a stream, a file in every micro-batch."""
    schema = spark.read.parquet(str(files[0])).schema
    names = ",".join(file.name for file in files)
    return (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .option("pathGlobFilter", f"{{{names}}}")
        .parquet(str(files[0].parent))
    )


def join_with_semistream(orders: DataFrame, relation: Relation, *, worker_bytes: int, metrics: Path) -> DataFrame:
    """Left join with the products, each worker within its bytes and with its own part of R."""
    metrics.mkdir()
    return join(
        orders,
        relation,
        on={"product_id": "id"},
        how="left",
        memory=worker_bytes,
        operator=ReportingMeshJoin,
        route="range",
        report_to=str(metrics.absolute()),
    )


def join_with_spark(orders: DataFrame, products: Path) -> DataFrame:
    """The same join as Spark itself does it: a stream with a static DataFrame, planned by default settings."""
    table = orders.sparkSession.read.parquet(str(products))
    return orders.join(table, orders["product_id"] == table["id"], "left").drop("id")


def join_strategy(df: DataFrame) -> str:
    """The join that Spark plans for a DataFrame, by its own name."""
    with redirect_stdout(StringIO()) as plan:
        df.explain()
    found = re.search(r"\b(\w+Join)\b", plan.getvalue())
    return found[1] if found else "unknown"


def run_query(df: DataFrame, folder: Path, *, log: Path) -> Iterator[Batch]:
    """Run a streaming query over all files there are; gives each micro-batch when it is done.

    Results go to ``folder/results`` as Parquet, beside the checkpoint. The error of a query that fails names ``log``,
    where Spark's log goes.
    """
    query = (
        df.writeStream.format("parquet")
        .option("path", str(folder / "results"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    done = -1
    try:
        active = True
        while active:
            active = not query.awaitTermination(_POLL_S)
            for batch in _finished(query.recentProgress, after=done):
                done = batch.number
                yield batch
    except StreamingQueryException as error:
        raise SemistreamError(f"the query in {folder} failed: {_reason(error)}. {log} has all of it.") from error
    finally:
        query.stop()


def _reason(error: StreamingQueryException) -> str:
    """The line of a worker's error if it was one, else the first line of Spark's."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    traced = [line for line in lines if re.match(r"[\w.]+: ", line)]
    return (traced or lines)[-1 if traced else 0].rstrip(".")


def _finished(progress: Iterable[Any], *, after: int) -> Iterator[Batch]:
    for report in progress:
        if report.batchId > after and report.numInputRows:
            yield Batch(report.batchId, report.numInputRows, report.durationMs["triggerExecution"] / 1000)
