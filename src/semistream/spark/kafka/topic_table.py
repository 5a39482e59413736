"""A topic of Kafka as a table: rows are sent as JSON, with headers by which a reader tells those that come twice."""

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
    """Sends the rows of each batch to a topic, at least once: a batch that is killed on its way is sent again.

    The value of a message is the row as a JSON object with all its columns, nulls too, and times in UTC. Its headers
    are texts: ``pipeline`` (the name of the pipeline and the token of its checkpoint), ``table`` (the outcome of the
    row: joined, unmatched, ...), ``batch_id``, and ``row``, the number of the row in its batch. Messages with the same
    four headers are the same row: a reader that keeps one of each has every row exactly once.
    """

    def open(self) -> None:
        """Refuse columns that Spark cannot send, a Spark without the connector, and a topic that is not there."""
        super().open()
        for field in self.schema:
            if pa.types.is_time(field.type) or pa.types.is_null(field.type):
                raise PipelineError(
                    f"the column {field.name!r} is {field.type}, which cannot be sent to {self.spec.place}. Leave it "
                    "out with `columns` of its join, or build the relation with the column cast to a string."
                )
        spark = SparkSession.active()
        require_connector(spark)
        topic_ranges(spark, str(self.spec.servers), str(self.spec.topic), self.spec.options)

    def hand_over(self, batch: int, files: Sequence[OutboxFile]) -> None:
        """Send the rows, and return when the brokers have them."""
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
                f"rows of batch {batch} cannot be sent to {self.spec.place}: {failure_text(error)}. They wait in "
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
"""The kinds of tables that need Spark to be written."""
