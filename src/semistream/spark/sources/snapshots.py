"""Whole snapshots as a source: one in each batch, in the order of their names.

Spark's data source of snapshots: a stream of their names.

Spark starts Python processes to plan it, and this module is sent to them as it is: it imports nothing of semistream, so
that they start at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from semistream.pipelines.spec.source_spec import FileSource
from semistream.spark.sources.base import BatchInput, BatchSource, register_by_value
from semistream.spark.sources.files import FolderSource

COMPLETE = "_SUCCESS"
"""The file that says that a folder is a whole snapshot."""
NAME = "name"
"""Its only column."""


def snapshot_names(folder: Path, kind: str) -> list[str]:
    """The snapshots that are there and whole, in their order."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(("_", "."))]
    if kind == "files":
        return sorted(path.name for path in visible if path.is_file())
    return sorted(path.name for path in visible if (path / COMPLETE).exists())


class SnapshotDataSource(DataSource):  # type: ignore[misc]
    """Spark's data source ``semistream_snapshots``: a row for each snapshot, with its name."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``spark.readStream.format``."""
        return "semistream_snapshots"

    def schema(self) -> str:
        """Its columns."""
        return f"{NAME} STRING"

    def streamReader(self, schema: Any) -> SnapshotReader:  # noqa: ARG002, N802 (Spark's name)
        """The reader of the stream."""
        return SnapshotReader(self.options["folder"], self.options["kind"])


@dataclass
class _Snapshot(InputPartition):  # type: ignore[misc]
    name: str


class SnapshotReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One snapshot in each batch. One whose name comes before that of a snapshot that was read is never read."""

    def __init__(self, folder: str, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._last: str | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        """Before all names."""
        return {NAME: ""}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Those that are there now."""
        self._last = max(snapshot_names(Path(self._folder), self._kind), default="")

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: ARG002, N802
        """The next snapshot, if there is one."""
        names = snapshot_names(Path(self._folder), self._kind)
        later = [name for name in names if name > start[NAME] and (self._last is None or name <= self._last)]
        return {NAME: min(later, default=start[NAME])}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The one snapshot."""
        return [_Snapshot(end[NAME])] if end[NAME] != start[NAME] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Its name."""
        assert isinstance(partition, _Snapshot)
        yield (partition.name,)


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
