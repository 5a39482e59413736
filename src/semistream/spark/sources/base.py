"""BatchSource: the contract of a pipeline's source, and the registration of Python data sources with Spark."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from semistream.pipelines.batch.workers import BatchInput
from semistream.spark.session import worker_interpreter


class BatchSource(ABC):
    """Source of a pipeline's rows, as a Spark stream."""

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the stream that Spark divides into batches."""

    came: ClassVar[str] = "__came"
    """Last column of rows that Spark reads, if the source `tells_arrival`: their arrival time in milliseconds."""

    tells_arrival = False
    """True under a latency goal: rows have an arrival time, and a batch takes all available rows."""

    def files(self, df: DataFrame, logged: Callable[[], list[str] | None]) -> list[str]:  # noqa: ARG002
        """Return the files of a batch, if the source has files. ``logged`` gives those in Spark's log, if known."""
        return []

    @abstractmethod
    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:
        """Return the input of a batch, given its rows in the stream and its files."""


def register_by_value(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, and send its module along by value.

    Spark starts a Python process for each step of planning a stream, several per batch. Importing semistream would take
    each of them more than a second.
    """
    module = sys.modules[source.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        with worker_interpreter(spark):
            spark.dataSource.register(source)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
