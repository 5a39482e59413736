"""Generator source: synthetic rows at a steady rate, the same in every run, as a Python data source of Spark.

Spark starts Python processes to plan the stream, and this module is sent to them by value. Its reader imports nothing
of semistream before it generates rows, so that these processes start quickly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from semistream.pipelines.batch.workers import BatchInput
from semistream.pipelines.spec.source_spec import GeneratorSource
from semistream.pipelines.task.batch_task import RAW
from semistream.spark.sources.base import BatchSource, register_by_value

_BATCH_ROWS = 1 << 16
_ROW = "row"


class ZipfDataSource(DataSource):  # type: ignore[misc]
    """Spark data source ``semistream_zipf``: keys by Zipf's law, with their positions (`semistream.datasets.Zipf`)."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return "semistream_zipf"

    def schema(self) -> str:
        """Return the columns as DDL."""
        return "key BIGINT, seq BIGINT"

    def streamReader(self, schema: Any) -> ZipfReader:  # noqa: ARG002, N802 (Spark's name)
        """Return the reader of the stream."""
        options = self.options
        zipf = (float(options["exponent"]), int(options["keys"]), int(options["seed"]))
        rows = int(options["rows"]) if "rows" in options else None
        return ZipfReader(zipf, int(options["rate"]), rows, int(options["partitions"]))


@dataclass
class _Rows(InputPartition):  # type: ignore[misc]
    """Range of rows, by position."""

    begin: int
    end: int


class ZipfReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reader of ``rate`` new rows per second since its creation, up to ``rows`` in total.

    For a query that reads the available rows and ends, all ``rows`` are available at once, in batches of ``rate``.
    """

    def __init__(self, zipf: tuple[float, int, int], rate: int, rows: int | None, partitions: int) -> None:
        self._zipf, self._rate, self._rows, self._partitions = zipf, rate, rows, partitions
        self._since = time.monotonic()
        self._until: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the first offset: rows are numbered from 0."""
        return {_ROW: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make all rows available; of an endless stream, those of one second."""
        self._until = self._rate if self._rows is None else self._rows

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit: the rate limits the rows of a batch."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Return the end of the next batch: the rows due since the last call."""
        begin, now = start[_ROW], time.monotonic()
        if self._until is not None:
            return {_ROW: max(begin, min(self._until, begin + self._rate))}
        end = begin + int((now - self._since) * self._rate)
        self._since = now
        return {_ROW: end if self._rows is None else max(begin, min(end, self._rows))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Divide the rows of a batch into ranges, one per task."""
        begin, rows = start[_ROW], end[_ROW] - start[_ROW]
        cuts = [begin + rows * i // self._partitions for i in range(self._partitions + 1)]
        return [_Rows(a, b) for a, b in pairwise(cuts) if b > a]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Generate the rows of a range; each depends only on the seed and its number."""
        assert isinstance(partition, _Rows)
        from semistream.datasets import Zipf  # late: planning processes do not need it

        exponent, keys, seed = self._zipf
        stream = Zipf(exponent, keys, seed=seed).seek(partition.begin)
        while stream.position < partition.end:
            rows = min(_BATCH_ROWS, partition.end - stream.position)
            yield from stream.batches(rows, 1)


class MadeUpSource(BatchSource):
    """Pipeline source of generated rows."""

    def __init__(self, spec: GeneratorSource) -> None:
        self._spec = spec

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the stream of generated rows."""
        register_by_value(spark, ZipfDataSource)
        spec = self._spec
        options = {"exponent": spec.exponent, "keys": spec.keys, "seed": spec.seed, "rate": spec.rate}
        if spec.rows is not None:
            options["rows"] = spec.rows
        options["partitions"] = spark.sparkContext.defaultParallelism
        reader = spark.readStream.format(ZipfDataSource.name())
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:  # noqa: ARG002
        """Return the rows of a batch; all are valid."""
        assert df is not None
        rows = df.withColumn(RAW, sf.lit(None).cast("string"))
        return BatchInput(rows.withColumn(self.came, sf.lit(None).cast("bigint")) if self.tells_arrival else rows)
