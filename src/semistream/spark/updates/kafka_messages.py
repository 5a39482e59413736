"""UpdateMessages: Kafka messages that update a relation, read in pieces and stored until they are applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from semistream.errors import PipelineError
from semistream.pipelines.spec.source_spec import KafkaSource
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.task.batch_task import RAW
from semistream.relation import Relation
from semistream.spark.joins.routing import quoted
from semistream.spark.kafka.connector import TopicRange, require_connector, topic_ranges
from semistream.spark.sources.kafka import COMMITTED, TopicSource, message_text
from semistream.storage.local_files import whole_file

DELETES = "__deletes"
"""Column that flags rows that delete their key."""

_MOST = 500_000  # messages of one update; the driver holds them in memory
_KEY = "__key"


class UpdateMessages:
    """Messages of a topic as updates of a relation.

    A value is a JSON row to upsert. A message without a value deletes the row whose key is the message's key as text;
    this is for relations with a single key column. Within a partition the last message of a key wins. All messages of
    a key must be in one partition, as Kafka's default partitioner ensures.
    """

    def __init__(self, spec: UpdatesSpec, folder: Path, label: str) -> None:
        self._spec, self._folder, self._label = spec, folder, label
        self._servers, self._topic = str(spec.servers), str(spec.topic)

    def next(self, spark: SparkSession, before: dict[str, Any], number: int) -> dict[str, Any] | None:
        """Store the messages since an update in a file; return its name and the end offsets, or None without messages.

        ``before`` is the previous update's content. New partitions are read from their beginning.
        """
        require_connector(spark)
        ranges = topic_ranges(spark, self._servers, self._topic, self._spec.options)
        known = {int(number): int(offset) for number, offset in before.get("offsets", {}).items()}
        starts = {number: known.get(number, each.first) for number, each in ranges.items()}
        for partition, each in ranges.items():
            self._require_there(partition, starts[partition], each)
        ends, left = {}, _MOST
        for partition, each in ranges.items():
            ends[partition] = min(each.end, starts[partition] + left)
            left -= ends[partition] - starts[partition]
        if starts == ends:
            return None
        messages = self._read(spark, starts, ends)
        name = f"{self._label}-{number}.messages.parquet"
        write_aside(self._folder / name, messages)
        return {"messages": name, "rows": messages.num_rows, "offsets": {str(part): end for part, end in ends.items()}}

    def rows(self, spark: SparkSession, relation: Relation, columns: dict[str, str], name: str) -> pa.Table:
        """Parse stored messages into rows, in their order, with the raw text of unreadable ones."""
        topic = KafkaSource(format="kafka", servers=self._servers, topic=self._topic, schema=columns)
        messages = spark.read.parquet(str(self._folder / name)).orderBy("partition", "offset")
        gone, key = sf.col("value").isNull().alias(DELETES), message_text("key").alias(_KEY)
        rows = TopicSource(topic).rows(messages, gone, key)
        if len(relation.key) == 1:
            (own,) = relation.key
            value = sf.col(_KEY).try_cast(columns[own])
            told = sf.col(DELETES) & value.isNotNull()
            rows = rows.withColumns(
                {
                    own: sf.when(told, value).otherwise(sf.col(quoted(own))),
                    RAW: sf.when(told, sf.lit(None)).otherwise(sf.col(RAW)),
                }
            )
        return rows.drop(_KEY).toArrow()

    def forget(self, content: dict[str, Any]) -> None:
        """Remove the stored messages of an applied update."""
        (self._folder / content["messages"]).unlink(missing_ok=True)

    def _require_there(self, partition: int, start: int, found: TopicRange) -> None:
        if found.first <= start <= found.end:
            return
        raise PipelineError(
            f"updates were read up to offset {start} of partition {partition} of the topic {self._topic!r}, which now "
            f"has offsets from {found.first} to {found.end}: updates are lost, or the topic is another one. Rebuild "
            "the relation, and give the pipeline a new checkpoint."
        )

    def _read(self, spark: SparkSession, starts: dict[int, int], ends: dict[int, int]) -> pa.Table:
        reader = spark.read.format("kafka")
        for name, value in {**COMMITTED, **self._spec.options}.items():
            reader = reader.option(name, value)
        reader = (
            reader.option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", self._topic)
            .option("startingOffsets", self._offsets(starts))
            .option("endingOffsets", self._offsets(ends))
        )
        return reader.load().select("key", "value", "partition", "offset").toArrow()

    def _offsets(self, offsets: dict[int, int]) -> str:
        return json.dumps({self._topic: {str(partition): offset for partition, offset in offsets.items()}})


def write_aside(path: Path, table: pa.Table) -> None:
    """Write a table to a Parquet file, atomically."""
    with whole_file(path) as file:
        pq.write_table(table, file)
