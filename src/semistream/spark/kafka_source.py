"""A topic of Kafka as a source: values are rows as JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from semistream.errors import PipelineError
from semistream.etl.batch_task import RAW
from semistream.etl.source_spec import KafkaSource
from semistream.spark.batch_source import BatchInput, BatchSource

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_PARSED, _TEXT = "__parsed", "__text"


class TopicSource(BatchSource):
    """Messages of a topic, so many in a batch at most.

    A value that is not a row, or has a field of another type, comes as its text; so does a message without a value,
    which is how a compacted topic says that a key is gone.
    """

    def __init__(self, spec: KafkaSource) -> None:
        self._spec = spec

    def stream(self, spark: SparkSession) -> DataFrame:
        """The messages of the topic."""
        spec = self._spec
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", spec.servers)
            .option("subscribe", spec.topic)
            .option("startingOffsets", spec.starting)
            .option("maxOffsetsPerTrigger", spec.rows_per_batch)
        )
        for name, value in spec.options.items():
            reader = reader.option(name, value)
        try:
            return reader.load().select("key", "value", "partition", "offset")
        except AnalysisException as error:
            raise without_connector(spark, error) from error

    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:  # noqa: ARG002
        """The messages as rows."""
        assert df is not None
        columns = [field.name for field in from_arrow_schema(self._spec.arrow_schema)]
        text = df.withColumn(_TEXT, sf.make_valid_utf8(sf.col("value").cast("string")))
        parsed = text.withColumn(_PARSED, self._parsed(sf.col(_TEXT)))
        nothing = sf.concat(
            sf.lit("(no value) key "),
            sf.coalesce(sf.make_valid_utf8(sf.col("key").cast("string")), sf.lit("null")),
            sf.concat(sf.lit(", partition "), sf.col("partition"), sf.lit(", offset "), sf.col("offset")),
        )
        unread = sf.when(sf.col("value").isNull(), nothing).otherwise(sf.col(f"{_PARSED}.{RAW}"))
        rows = parsed.select(*(sf.col(_PARSED).getField(name).alias(name) for name in columns), unread.alias(RAW))
        return BatchInput(rows)

    def _parsed(self, text: Column) -> Column:
        schema = StructType([*from_arrow_schema(self._spec.arrow_schema).fields, StructField(RAW, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}
        if self._spec.value == "csv":
            return sf.from_csv(text, schema.toDDL(), options)
        return sf.from_json(text, schema, options)


def without_connector(spark: SparkSession, error: AnalysisException) -> PipelineError:
    """What to do where Spark does not know Kafka."""
    if "kafka" not in str(error).lower():
        return PipelineError(f"the Kafka source cannot be read: {str(error).splitlines()[0]}")
    return PipelineError(
        "Spark has no connector for Kafka on its class path. Start it with "
        f"`--packages {CONNECTOR}:{spark.version}`, or set spark.jars.packages to that."
    )
