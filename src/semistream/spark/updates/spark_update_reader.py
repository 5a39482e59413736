"""SparkUpdateReader: update files and Kafka messages, read by Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from semistream.pipelines.spec.source_spec import FileSource, KafkaSource
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.task.batch_task import RAW
from semistream.pipelines.updates.parquet_updates import read_parquet_updates
from semistream.pipelines.updates.update_reader import DELETES, TopicRange, UpdateReader
from semistream.spark.joins.routing import quoted
from semistream.spark.kafka.connector import require_connector, topic_ranges
from semistream.spark.sources.files import FolderSource, local_path
from semistream.spark.sources.kafka import COMMITTED, TopicSource, message_text
from semistream.spark.sources.read_failures import named_failures

_KEY, _FILE, _PART, _ROW = "__key", "__file", "__part", "__row"


@dataclass(frozen=True)
class SparkUpdateReader(UpdateReader):
    """Reader of updates on Spark."""

    spark: SparkSession

    def read_files(self, spec: UpdatesSpec, columns: Mapping[str, str], files: Sequence[Path]) -> pa.Table:
        assert spec.path is not None
        assert spec.format != "kafka"
        if spec.format == "parquet":  # which needs no Spark
            return read_parquet_updates(files, columns)
        source = _OrderedFiles(
            FileSource(
                format=spec.format, path=spec.path, schema=dict(columns), options=spec.options, on_schema_change="stop"
            ),
            through_spark=True,
        )
        with named_failures():
            rows = source.read(None, [str(file) for file in files], self.spark).rows
            return _in_order(rows.toArrow(), files)

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


class _OrderedFiles(FolderSource):
    """Files whose rows have their file, the place of their part of it, and their number in that part."""

    @property
    def about_files(self) -> list[Column]:
        return [
            sf.col("_metadata.file_path").alias(_FILE),
            sf.col("_metadata.file_block_start").alias(_PART),
            sf.monotonically_increasing_id().alias(_ROW),
        ]


def _in_order(rows: pa.Table, files: Sequence[Path]) -> pa.Table:
    """Return rows in the order of their files, without the columns that tell it."""
    places = {file.name: place for place, file in enumerate(files)}
    found = rows.column(_FILE).combine_chunks().dictionary_encode()
    place = pa.array([places[Path(local_path(uri)).name] for uri in found.dictionary.to_pylist()], pa.int64())
    order = pa.table({_FILE: place.take(found.indices), _PART: rows.column(_PART), _ROW: rows.column(_ROW)})
    sorted_by = [(name, "ascending") for name in order.column_names]
    return rows.drop_columns(order.column_names).take(pc.sort_indices(order, sorted_by))
