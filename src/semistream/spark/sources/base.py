"""What a pipeline reads in each batch: rows that Spark reads, and splits that tasks read themselves.

Data sources of our own, given to Spark so that its Python processes need not import semistream for them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from semistream.pipelines.inputs.splits import SourceSplit
from semistream.spark.session import worker_interpreter


@dataclass(frozen=True)
class BatchInput:
    """The rows of a batch: some in a DataFrame with the source's columns and the text of rows that cannot be read, and
    some that tasks read themselves. ``remarks`` are for the one who runs the pipeline.
    """

    rows: DataFrame | None = None
    splits: list[SourceSplit] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class BatchSource(ABC):
    """A source of rows as a stream of Spark."""

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """The stream that Spark cuts into batches."""

    came: ClassVar[str] = "__came"
    """The last column of rows that Spark reads where it `tells_arrival`: when they came, in milliseconds."""

    tells_arrival = False
    """Whether it matters when rows came, and a batch is to take in all that waits: so under a goal for latency."""

    def files(self, df: DataFrame) -> list[str]:  # noqa: ARG002
        """The files of a batch of the stream, if it is of files."""
        return []

    @abstractmethod
    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:
        """What there is to read in a batch of the stream, which has these files."""


def register_by_value(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source whose module is sent along with it.

    Spark starts a Python process for each step of planning a stream, several in a batch, and to import semistream takes
    each of them more than a second.
    """
    module = sys.modules[source.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        with worker_interpreter(spark):
            spark.dataSource.register(source)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
