"""Spark part of the demo: the same joins with Spark's own operators, on the same orders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from semistream.errors import SemistreamError
from semistream.spark.session import local_session

_POLL_S = 0.1


@dataclass(frozen=True)
class Batch:
    """A finished micro-batch.

    ``seconds`` is its whole duration, Spark's ``triggerExecution``, ``lag_s`` the time from the arrival of its file
    until its rows were in their table, at the time ``at``. ``bytes_moved`` were read of the looked-up tables, or read
    and shuffled.
    """

    number: int
    rows: int
    seconds: float
    lag_s: float
    bytes_moved: int
    at: float


@contextmanager
def open_session(cores: int, *, log: Path, warehouse: Path) -> Iterator[SparkSession]:
    """Open a local Spark session whose output, and that of its workers, goes to the file ``log``."""
    settings = {
        "spark.sql.shuffle.partitions": str(cores),  # Spark's default of 200 would slow its own join down
        "spark.sql.streaming.numRecentProgressUpdates": "1000000",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.executor.heartbeatInterval": "1s",  # memory is sampled as often
    }
    with local_session("semistream demo", cores, log=log, settings=settings) as session:
        yield session


def read_orders(spark: SparkSession, folder: Path, *, like: Path) -> DataFrame:
    """Read the orders that arrive in a folder as a stream, one file per micro-batch, with the columns of ``like``."""
    schema = spark.read.parquet(str(like)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def join_with_spark(orders: DataFrame, data: Path, how: str) -> DataFrame:
    """Return the demo's star join as Spark plans it by default: a stream joined with static DataFrames.

    ``how`` is the join with the products: "left" keeps orders of unknown products, as the pipeline does; "inner" drops
    them.
    """
    spark = orders.sparkSession
    products, customers, stores = (
        spark.read.parquet(str(data / f"{name}.parquet")) for name in ("products", "customers", "stores")
    )
    valid = orders.where("quantity BETWEEN 1 AND 1000 AND customer IS NOT NULL")
    joined = (
        valid.join(products, valid["product_id"] == products["id"], how)
        .drop("id")
        .join(customers, valid["customer"] == customers["code"], "left")
        .drop("code")
    )
    return joined.join(stores, joined["store_id"] == stores["id"]).drop("id")


def join_strategy(df: DataFrame) -> str:
    """Return the names and counts of the join operators in Spark's plan of a DataFrame."""
    with redirect_stdout(StringIO()) as plan:
        df.explain()
    found = re.findall(r"\b(\w+Join)\b", plan.getvalue())
    return " and ".join(f"{found.count(name)} {name}" for name in dict.fromkeys(found)) or "unknown"


class OwnQuery:
    """A streaming query of Spark's own, that writes its results to ``folder/results`` as Parquet.

    It reads all columns of the tables in every batch, ``table_bytes`` in all.
    """

    def __init__(
        self, df: DataFrame, folder: Path, arrived: Mapping[str, float], *, table_bytes: int, log: Path
    ) -> None:
        self._folder, self._log, self._arrived, self._table_bytes = folder, log, arrived, table_bytes
        self._store = df.sparkSession.sparkContext._jsc.sc().statusStore()
        self._shuffled = [self._shuffled_bytes()]
        self._batches: list[Batch] = []
        writer = df.writeStream.format("parquet").option("path", str(folder / "results"))
        self._query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def wait_for(self, batches: int, watch: Callable[[], None]) -> list[Batch]:
        """Wait until so many batches are finished; call ``watch`` meanwhile."""
        try:
            while len(self.batches()) < batches:
                watch()
                if self._query.awaitTermination(_POLL_S):
                    break
            watch()
        except StreamingQueryException as error:
            raise SemistreamError(
                f"the query in {self._folder} failed: {_reason(error)}. The full error is in {self._log}."
            ) from error
        return self._batches[:batches]

    def batches(self) -> list[Batch]:
        """Return the finished batches so far. Files arrive, and are taken, in the order of their names."""
        for progress in self._query.recentProgress:
            if progress.batchId < len(self._batches) or not progress.numInputRows:
                continue
            seconds = progress.durationMs["triggerExecution"] / 1000
            done = datetime.fromisoformat(progress.timestamp).timestamp() + seconds
            arrived = sorted(self._arrived.values())[len(self._batches)]
            self._shuffled.append(self._shuffled_bytes())
            moved = self._table_bytes + self._shuffled[-1] - self._shuffled[-2]
            number = len(self._batches)
            self._batches.append(Batch(number, progress.numInputRows, seconds, done - arrived, moved, done))
        return self._batches

    def stop(self) -> None:
        """Stop the query."""
        self._query.stop()

    def _shuffled_bytes(self) -> int:
        """Bytes that the session has shuffled so far. Spark does not count what it reads of Parquet by vectored I/O."""
        return int(self._store.executorSummary("driver").totalShuffleWrite())


def execution_bytes(spark: SparkSession) -> int | None:
    """Return the most memory that Spark has used for joins and sorts, as it has sampled it; None if it has not."""
    peaks = spark.sparkContext._jsc.sc().statusStore().executorSummary("driver").peakMemoryMetrics()
    if not peaks.isDefined():
        return None
    names = ("OnHeapExecutionMemory", "OffHeapExecutionMemory")
    return sum(int(peaks.get().getMetricValue(name)) for name in names) or None


def _reason(error: StreamingQueryException) -> str:
    """Return the last line that looks like a Python error, else the first line of Spark's message."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    traced = [line for line in lines if re.match(r"[\w.]+: ", line)]
    return (traced or lines)[-1 if traced else 0].rstrip(".")
