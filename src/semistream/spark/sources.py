"""The source of a pipeline, opened by its kind."""

from __future__ import annotations

from semistream.etl.source_spec import FileSource, KafkaSource
from semistream.etl.spec import PipelineSpec
from semistream.spark.batch_source import BatchSource
from semistream.spark.file_source import FolderSource
from semistream.spark.generator_source import MadeUpSource
from semistream.spark.kafka_source import TopicSource
from semistream.spark.snapshot_source import SnapshotSource


def open_source(spec: PipelineSpec, *, through_spark: bool) -> BatchSource:
    """The source; if rows must go ``through_spark`` before they are joined, none are read by tasks themselves."""
    opened = _opened(spec, through_spark=through_spark)
    opened.tells_arrival = spec.overload is not None
    return opened


def _opened(spec: PipelineSpec, *, through_spark: bool) -> BatchSource:
    source = spec.source
    if isinstance(source, FileSource) and any(step.changes is not None for step in spec.steps):
        return SnapshotSource(source, through_spark=through_spark)
    if isinstance(source, FileSource):
        return FolderSource(source, through_spark=through_spark)
    return TopicSource(source) if isinstance(source, KafkaSource) else MadeUpSource(source)
