"""Kafka topic as a source: message values are rows in JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from semistream.pipelines.batch.workers import BatchInput
from semistream.pipelines.spec.source_spec import KafkaSource
from semistream.pipelines.task.batch_task import RAW
from semistream.spark.kafka.connector import FOR_KAFKA, require_connector
from semistream.spark.sources.base import BatchSource
from semistream.spark.try_eval import attempted

COMMITTED = {"kafka.isolation.level": "read_committed"}
"""Default option that skips messages of aborted transactions."""

_MOST_ROWS = 900_000_000  # the most rows of a batch under a latency goal: more cannot be shed at once
_PARSED, _TEXT = "__parsed", "__text"


class TopicSource(BatchSource):
    """Source of a topic's messages, a limited number per batch. Offsets without a message are skipped.

    A value that is not exactly one row, or has a field of another type, is passed on as raw text. So is a message
    without a value, the tombstone of a deleted key in a compacted topic.
    """

    def __init__(self, spec: KafkaSource) -> None:
        self._spec = spec

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the stream of the topic's messages."""
        spec = self._spec
        require_connector(spark)
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", spec.servers)
            .option("subscribe", spec.topic)
            .option("startingOffsets", spec.starting)
            .option("maxOffsetsPerTrigger", _MOST_ROWS if self.tells_arrival else spec.rows_per_batch)
        )
        for name, value in {**COMMITTED, **spec.options}.items():
            reader = reader.option(name, value)
        return reader.load().select("key", "value", "partition", "offset", *["timestamp"] * self.tells_arrival)

    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:  # noqa: ARG002
        """Return the rows of a batch of messages."""
        assert df is not None
        came = [sf.unix_millis(sf.col("timestamp")).alias(self.came)] if self.tells_arrival else []
        return BatchInput(self.rows(df, *came))

    def rows(self, messages: DataFrame, *kept: Column) -> DataFrame:
        """Parse messages into rows, followed by the raw text of unreadable ones and the message columns ``kept``."""
        columns = [field.name for field in from_arrow_schema(self._spec.arrow_schema)]
        text = messages.withColumn(_TEXT, message_text("value"))
        parsed = text.withColumn(_PARSED, attempted(self._parsed(sf.col(_TEXT)), messages))
        nothing = sf.concat(
            sf.lit("(no value) key "),
            sf.coalesce(message_text("key"), sf.lit("null")),
            sf.concat(sf.lit(", partition "), sf.col("partition"), sf.lit(", offset "), sf.col("offset")),
        )
        no_row = sf.col(_PARSED).isNull() | self._is_more_than_a_row(sf.col(_TEXT))
        unread = sf.when(sf.col("value").isNull(), nothing).when(no_row, sf.col(_TEXT))
        unread = unread.otherwise(sf.col(f"{_PARSED}.{RAW}"))
        own = [sf.col(_PARSED).getField(name).alias(name) for name in columns]
        return parsed.select(*own, unread.alias(RAW), *kept)

    def _parsed(self, text: Column) -> Column:
        schema = StructType([*from_arrow_schema(self._spec.arrow_schema).fields, StructField(RAW, StringType())])
        given = {name: value for name, value in self._spec.options.items() if not name.startswith(FOR_KAFKA)}
        options = {**given, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}
        if self._spec.value == "csv":
            return sf.from_csv(text, schema.toDDL(), options)
        return sf.from_json(text, schema, options)

    def _is_more_than_a_row(self, text: Column) -> Column:
        """Return an expression: true for a blank value, or one with text after its row. Spark's parser ignores both.

        Only a value with a ``}`` before its last character is parsed again, as the only element of an array.
        """
        blank = sf.trim(text) == ""
        if self._spec.value == "csv":
            return blank
        simple = sf.locate("}", text) == sf.length(sf.rtrim(text))
        alone = sf.size(sf.from_json(sf.concat(sf.lit("["), text, sf.lit("]")), f"array<struct<`{RAW}`: string>>")) == 1
        return blank | (~simple & ~sf.coalesce(alone, sf.lit(False)))


def message_text(column: str) -> Column:
    """Decode a key or value as UTF-8, with invalid bytes replaced."""
    return sf.make_valid_utf8(sf.col(column).cast("string"))
