"""SparkUpdateReader: update files and Kafka messages, read by Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from semistream.pipelines.spec.source_spec import FileSource, KafkaSource
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.task.batch_task import RAW
from semistream.pipelines.updates.update_reader import DELETES, TopicRange, UpdateReader
from semistream.spark.joins.routing import quoted
from semistream.spark.kafka.connector import require_connector, topic_ranges
from semistream.spark.sources.files import FolderSource
from semistream.spark.sources.kafka import COMMITTED, TopicSource, message_text

_KEY = "__key"


@dataclass(frozen=True)
class SparkUpdateReader(UpdateReader):
    """Reader of updates on Spark."""

    spark: SparkSession

    def read_files(self, spec: UpdatesSpec, columns: Mapping[str, str], files: Sequence[Path]) -> pa.Table:
        assert spec.path is not None
        assert spec.format != "kafka"
        source = FolderSource(
            FileSource(
                format=spec.format, path=spec.path, schema=dict(columns), options=spec.options, on_schema_change="stop"
            ),
            through_spark=True,
        )
        tables = []
        for file in files:
            rows = source.read(None, [str(file)], self.spark).rows
            if rows is not None:
                tables.append(_arrow(rows))
        return pa.concat_tables(tables)

    def ranges(self, spec: UpdatesSpec) -> dict[int, TopicRange]:
        require_connector(self.spark)
        return topic_ranges(self.spark, str(spec.servers), str(spec.topic), spec.options)

    def read_messages(self, spec: UpdatesSpec, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        reader = self.spark.read.format("kafka")
        for name, value in {**COMMITTED, **spec.options}.items():
            reader = reader.option(name, value)
        reader = (
            reader.option("kafka.bootstrap.servers", str(spec.servers))
            .option("subscribe", str(spec.topic))
            .option("startingOffsets", _offsets(spec, starts))
            .option("endingOffsets", _offsets(spec, ends))
        )
        return reader.load().select("key", "value", "partition", "offset").toArrow()

    def parse_messages(
        self, spec: UpdatesSpec, columns: Mapping[str, str], key: Sequence[str], messages: Path
    ) -> pa.Table:
        topic = KafkaSource(format="kafka", servers=str(spec.servers), topic=str(spec.topic), schema=dict(columns))
        stored = self.spark.read.parquet(str(messages)).orderBy("partition", "offset")
        gone, own_key = sf.col("value").isNull().alias(DELETES), message_text("key").alias(_KEY)
        rows = TopicSource(topic).rows(stored, gone, own_key)
        if len(key) == 1:
            (own,) = key
            value = sf.col(_KEY).try_cast(columns[own])
            told = sf.col(DELETES) & value.isNotNull()
            rows = rows.withColumns(
                {
                    own: sf.when(told, value).otherwise(sf.col(quoted(own))),
                    RAW: sf.when(told, sf.lit(None)).otherwise(sf.col(RAW)),
                }
            )
        return rows.drop(_KEY).toArrow()


def _offsets(spec: UpdatesSpec, offsets: Mapping[int, int]) -> str:
    return json.dumps({spec.topic: {str(partition): offset for partition, offset in offsets.items()}})


def _arrow(rows: DataFrame) -> pa.Table:
    return rows.select(*rows.columns[:-1], sf.col(rows.columns[-1]).cast("string").alias(RAW)).toArrow()
