"""The archive: rows that were shed, as they came, until they are repaired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.ledger.entries import ArchivedFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.spec.pipeline_spec import ARCHIVED_BY, ARCHIVED_IN
from semistream.pipelines.steps.row_flags import Numbers
from semistream.pipelines.tables.table import Table
from semistream.pipelines.tables.writer import ParquetWriting, TableLayout

CAME_AT, ROW_ID = "came_at", "row_id"
_READ_ROWS = 1 << 16
_LEAST_FILE, _MOST_FILE = 1 << 12, 1 << 18  # rows


def archive_schema(source: pa.Schema) -> pa.Schema:
    """The columns of the archive: the source's, when the row came, its number in the batch, and whose batch it was."""
    own = [(CAME_AT, pa.timestamp("us", "UTC")), (ROW_ID, pa.int64())]
    return pa.schema([*source, *own, (ARCHIVED_BY, pa.string()), (ARCHIVED_IN, pa.int64())])


def first_id(part: int) -> int:
    """The number in the batch of a part's first row."""
    return part << 40


def archived_rows(
    rows: pa.RecordBatch, came_ms: Numbers, ids: Numbers, *, pipeline: str, batch: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of the source as rows of the archive, whose columns are ``schema``."""
    n = rows.num_rows
    came = pa.array(came_ms * 1000).cast(pa.timestamp("us", "UTC"))
    whose = [pa.repeat(pipeline, n), pa.repeat(pa.scalar(batch, pa.int64()), n)]
    named = pa.RecordBatch.from_arrays([*rows.columns, came, pa.array(ids), *whose], names=schema.names)
    return convert_batch(named, schema)


@dataclass(frozen=True)
class ArchiveSplit:
    """Files of the archive in its folder, whose rows a task takes up; if there is an ``owner``, those of its part of R.

    Others then read the same rows for the rest, as with `SourceSplit`.
    """

    folder: str
    files: tuple[ArchivedFile, ...]
    owner: int | None = None

    @property
    def nbytes(self) -> int:
        """About how much there is to read."""
        return sum(file.rows for file in self.files) * 64

    def read(self, source: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Numbers, Numbers]]:
        """Rows with the source's columns, when each of them came in milliseconds, and their numbers.

        Of a copy of a file of the source, which nobody has read so far, the content may turn out to be no rows: then
        there is an error of Arrow's.
        """
        for file in self.files:
            try:
                if file.part is None:
                    yield from self._read_rows(file, source)
                else:
                    yield from self._read_copy(file, file.part, source)
            except (OSError, pa.ArrowException) as error:
                if file.part is not None and getattr(error, "errno", None) is None:
                    raise
                raise PipelineError(
                    f"{file.path}, {file.rows} rows of the archive {self.folder}, cannot be read: {error}. Nothing of "
                    "the repair was committed; restore the file, and start again."
                ) from error

    def _read_rows(self, file: ArchivedFile, source: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Numbers, Numbers]]:
        with pq.ParquetFile(Path(self.folder) / file.path, memory_map=False) as opened:
            for batch in opened.iter_batches(_READ_ROWS, columns=[*source.names, CAME_AT, ROW_ID]):
                came = batch.column(CAME_AT).cast(pa.int64()).to_numpy() // 1000
                rows = convert_batch(batch.select(source.names), source)
                yield rows, came, batch.column(ROW_ID).to_numpy().astype(np.int64)

    def _read_copy(
        self, file: ArchivedFile, part: int, source: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, Numbers, Numbers]]:
        """Some rows of a copy; row groups before them are not read."""
        with pq.ParquetFile(Path(self.folder) / file.path, memory_map=False) as opened:
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
            ends = np.cumsum(sizes)
            groups = np.flatnonzero((ends > file.begin) & (ends - sizes < file.begin + file.rows))
            row = int(ends[groups[0]] - sizes[groups[0]])
            for batch in opened.iter_batches(_READ_ROWS, row_groups=groups.tolist(), columns=source.names):
                first, end = max(file.begin - row, 0), min(file.begin + file.rows - row, batch.num_rows)
                if first < end:
                    wanted = batch.slice(first, end - first).select(source.names)
                    ids = np.arange(row + first, row + end, dtype=np.int64) + first_id(part)
                    yield convert_batch(wanted, source), np.full(end - first, file.came_ms, np.int64), ids
                row += batch.num_rows


def archive_layout(table: Table, file_rows: int) -> TableLayout:
    """Where and how files of the archive are written: small enough that some of them can be repaired at a time.

    And quickly, as there is no time.
    """
    writing = ParquetWriting(quick=True, counted=(CAME_AT, ROW_ID))
    return replace(table.layout, file_rows=min(max(file_rows, _LEAST_FILE), _MOST_FILE), writing=writing)


def leave_archive(table: Table, batch: int, files: Sequence[ArchivedFile], emptied: Sequence[int]) -> None:
    """Let rows that batch ``batch`` has repaired leave the archive; nothing happens to those that have left.

    A Parquet archive loses the files. One of Delta loses all rows of the batches that are ``emptied``, in one
    transaction: rows of a batch that is repaired bit by bit are seen there until the last of them are.
    """
    if not files:
        return
    reached("before leaving the archive")
    try:
        if table.spec.format == "parquet":
            for file in files:
                (table.path / file.path).unlink(missing_ok=True)
        elif emptied:
            _delete(table, batch, emptied)
    except OSError as error:
        raise PipelineError(
            f"rows that were repaired cannot leave the archive {table.path}: {error}. They are in their tables; start "
            "again when the archive can be written."
        ) from error
    reached("after leaving the archive")


def _delete(table: Table, batch: int, emptied: Sequence[int]) -> None:
    from deltalake import CommitProperties, DeltaTable  # noqa: PLC0415 (comes with semistream[delta] only)
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    numbers = ", ".join(map(str, sorted(emptied)))
    said = {"userMetadata": f"semistream {table.owner.name} batch {batch} repairs {numbers}"}
    try:
        archive = DeltaTable(str(table.path))
        archive.delete(
            f"{ARCHIVED_BY} = '{table.owner.name}' AND {ARCHIVED_IN} IN ({numbers})",
            commit_properties=CommitProperties(custom_metadata=said),
        )
    except DeltaError as error:
        raise PipelineError(
            f"rows that were repaired cannot leave the Delta table {table.path}: {error}. They are in their tables; "
            "start again when the archive can be written."
        ) from error
