"""Whole snapshots as a source: one in each batch, in the order of their names."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from semistream.etl.source_spec import FileSource
from semistream.spark.batch_source import BatchInput, BatchSource
from semistream.spark.data_sources import register_by_value
from semistream.spark.file_source import FolderSource
from semistream.spark.snapshot_stream import NAME, SnapshotDataSource


class SnapshotSource(BatchSource):
    """Snapshots in a folder, each a file or a folder of files.

    A file that is not what the source promises stops the pipeline: all its rows would seem to have been deleted.
    """

    def __init__(self, spec: FileSource, *, through_spark: bool) -> None:
        self._spec = spec
        whole = spec.model_copy(update={"on_schema_change": "stop"})
        self._files = FolderSource(whole, through_spark=through_spark)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The names of snapshots, as they become whole."""
        spec = self._spec
        register_by_value(spark, SnapshotDataSource)
        reader = spark.readStream.format(SnapshotDataSource.name())
        return reader.option("folder", str(spec.path)).option("kind", spec.snapshots).load()

    def files(self, df: DataFrame) -> list[str]:
        """The files of the snapshot."""
        (row,) = df.collect()
        path = self._spec.path / row[NAME]
        if self._spec.snapshots == "files":
            return [str(path)]
        return sorted(str(file) for file in path.iterdir() if not file.name.startswith(("_", ".")))

    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:
        """What there is to read of it."""
        return self._files.read(df, files, spark)
