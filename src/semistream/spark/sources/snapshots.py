"""Snapshot source: complete snapshots of a table, one per batch, in the order of their names.

The stream of names is a Python data source of Spark. Spark starts Python processes to plan it, and this module is sent
to them by value. Its reader imports nothing of semistream, so that these processes start quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from semistream.pipelines.batch.workers import BatchInput
from semistream.pipelines.spec.source_spec import FileSource
from semistream.spark.sources.base import BatchSource, register_by_value
from semistream.spark.sources.files import FolderSource

COMPLETE = "_SUCCESS"
"""File that marks a folder as a complete snapshot."""
NAME = "name"
"""Only column of the stream."""


def snapshot_names(folder: Path, kind: str) -> list[str]:
    """Return the names of the complete snapshots in a folder, sorted."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(("_", "."))]
    if kind == "files":
        return sorted(path.name for path in visible if path.is_file())
    return sorted(path.name for path in visible if (path / COMPLETE).exists())


class SnapshotDataSource(DataSource):  # type: ignore[misc]
    """Spark data source ``semistream_snapshots``: one row per snapshot, with its name."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return "semistream_snapshots"

    def schema(self) -> str:
        """Return the columns as DDL."""
        return f"{NAME} STRING"

    def streamReader(self, schema: Any) -> SnapshotReader:  # noqa: ARG002, N802 (Spark's name)
        """Return the reader of the stream."""
        return SnapshotReader(self.options["folder"], self.options["kind"])


@dataclass
class _Snapshot(InputPartition):  # type: ignore[misc]
    name: str


class SnapshotReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reader of one snapshot per batch, in the order of names. A name that sorts before the last one is never read."""

    def __init__(self, folder: str, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._last: str | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        """Return the offset before all names."""
        return {NAME: ""}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the snapshots that exist now."""
        self._last = max(snapshot_names(Path(self._folder), self._kind), default="")

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: ARG002, N802
        """Return the name of the next snapshot; ``start`` if there is none."""
        names = snapshot_names(Path(self._folder), self._kind)
        later = [name for name in names if name > start[NAME] and (self._last is None or name <= self._last)]
        return {NAME: min(later, default=start[NAME])}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return one partition for the snapshot of a batch."""
        return [_Snapshot(end[NAME])] if end[NAME] != start[NAME] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Yield the name of the snapshot."""
        assert isinstance(partition, _Snapshot)
        yield (partition.name,)


class SnapshotSource(BatchSource):
    """Source of the snapshots in a folder, each a file or a folder of files.

    A file that does not match the source's schema stops the pipeline: otherwise all its rows would count as deleted.
    """

    def __init__(self, spec: FileSource, *, through_spark: bool) -> None:
        self._spec = spec
        whole = spec.model_copy(update={"on_schema_change": "stop"})
        self._files = FolderSource(whole, through_spark=through_spark)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the stream of names of complete snapshots."""
        spec = self._spec
        register_by_value(spark, SnapshotDataSource)
        reader = spark.readStream.format(SnapshotDataSource.name())
        return reader.option("folder", str(spec.path)).option("kind", spec.snapshots).load()

    def files(self, df: DataFrame, logged: Callable[[], list[str] | None]) -> list[str]:  # noqa: ARG002
        """Return the files of the batch's snapshot."""
        (row,) = df.collect()
        path = self._spec.path / row[NAME]
        if self._spec.snapshots == "files":
            return [str(path)]
        return sorted(str(file) for file in path.iterdir() if not file.name.startswith(("_", ".")))

    def read(self, df: DataFrame | None, files: Sequence[str], spark: SparkSession) -> BatchInput:
        """Return the input of a batch, from the snapshot's files."""
        return self._files.read(df, files, spark)
