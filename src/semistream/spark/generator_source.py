"""The built-in workload as a source: made-up rows at a steady rate, the same in every run."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from semistream.etl.batch_task import RAW
from semistream.etl.source_spec import GeneratorSource
from semistream.spark.batch_source import BatchInput, BatchSource
from semistream.spark.data_sources import register_by_value
from semistream.spark.zipf_stream import ZipfDataSource


class MadeUpSource(BatchSource):
    """The generator as a source of a pipeline."""

    def __init__(self, spec: GeneratorSource) -> None:
        self._spec = spec

    def stream(self, spark: SparkSession) -> DataFrame:
        """The rows as they come."""
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
        """All rows are as promised."""
        assert df is not None
        rows = df.withColumn(RAW, sf.lit(None).cast("string"))
        return BatchInput(rows.withColumn(self.came, sf.lit(None).cast("bigint")) if self.tells_arrival else rows)
