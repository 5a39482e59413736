"""A Kafka topic as a target table: rows are sent as JSON, with headers that identify repeated messages."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from semistream.errors import PipelineError
from semistream.pipelines.tables.outbox import OutboxFile, OutboxTable
from semistream.pipelines.tables.table import Table
from semistream.spark.joins.routing import quoted
from semistream.spark.kafka.connector import FAILURES, failure_text, require_connector, topic_ranges

_AS_JSON = {"ignoreNullFields": "false", "timeZone": "UTC"}


class KafkaTable(OutboxTable):
    """Table that sends the rows of each batch to a topic, at least once: an interrupted batch is sent again.

    The value of a message is the row as a JSON object with all its columns, including nulls, and times in UTC. Its
    headers are strings: ``pipeline`` (the pipeline's name and its checkpoint's token), ``table`` (the outcome of the
    row: joined, unmatched, ...), ``batch_id``, and ``row``, the row's number within the batch. Messages with equal
    headers are the same row: a reader that keeps one of each has every row exactly once.
    """

    def open(self) -> None:
        """Raise `PipelineError` for a column type that Spark cannot send, a missing connector or a missing topic."""
        super().open()
        for field in self.schema:
            if pa.types.is_time(field.type) or pa.types.is_null(field.type):
                raise PipelineError(
                    f"the column {field.name!r} is {field.type}, which cannot be sent to {self.spec.place}. Drop it "
                    "with `columns` of its join, or build the relation with the column cast to a string."
                )
        spark = SparkSession.active()
        require_connector(spark)
        topic_ranges(spark, str(self.spec.servers), str(self.spec.topic), self.spec.options)

    def hand_over(self, batch: int, files: Sequence[OutboxFile]) -> None:
        """Send the rows; return once the brokers have acknowledged them."""
        frame = SparkSession.active().read.parquet(*(str(file.path) for file in files))
        place = frame.metadataColumn("_metadata")
        firsts = [part for file in files for part in (sf.lit(file.path.name), sf.lit(file.first_row).cast("bigint"))]
        row = sf.create_map(*firsts)[place.getField("file_name")] + place.getField("row_index")
        columns = [sf.col(quoted(name)) for name in self.schema.names]
        messages = frame.select(
            sf.to_json(sf.struct(*columns), _AS_JSON).alias("value"), self._headers(batch, row).alias("headers")
        )
        options = {**self.spec.options, "kafka.bootstrap.servers": self.spec.servers, "topic": self.spec.topic}
        try:
            messages.write.format("kafka").options(**options).save()
        except FAILURES as error:
            raise PipelineError(
                f"rows of batch {batch} cannot be sent to {self.spec.place}: {failure_text(error)}. They stay in "
                f"{self.path}, and are sent when the pipeline is started again."
            ) from error

    def _headers(self, batch: int, row: Column) -> Column:
        texts = {
            "pipeline": sf.lit(f"{self.owner.name}/{self.owner.token}"),
            "table": sf.lit(self.path.name),
            "batch_id": sf.lit(str(batch)),
            "row": row.cast("string"),
        }
        return sf.array(
            *(sf.struct(sf.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in texts.items())
        )


KINDS: dict[str, type[Table]] = {"kafka": KafkaTable}
"""Table kinds that need Spark to be written."""
