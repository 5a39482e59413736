"""Open the source of a pipeline by its kind."""

from __future__ import annotations

from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.source_spec import FileSource, KafkaSource
from semistream.spark.sources.base import BatchSource
from semistream.spark.sources.files import FolderSource
from semistream.spark.sources.generator import MadeUpSource
from semistream.spark.sources.kafka import TopicSource
from semistream.spark.sources.snapshots import SnapshotSource


def open_source(spec: PipelineSpec, *, through_spark: bool) -> BatchSource:
    """Open the source; with ``through_spark``, Spark reads all rows, and tasks read none themselves."""
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
