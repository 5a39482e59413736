"""The archive: shed rows, as they came, until they are repaired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.kernels.array_types import Int64s
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.ledger.entries import ArchivedFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.spec.pipeline_spec import ARCHIVED_BY, ARCHIVED_IN
from semistream.pipelines.tables.table import Table
from semistream.pipelines.tables.writer import ParquetWriting, TableLayout
from semistream.storage.local_files import sync_folder

CAME_AT, ROW_ID = "came_at", "row_id"
_READ_ROWS = 1 << 16
_LEAST_FILE, _MOST_FILE = 1 << 12, 1 << 18  # rows of a file


def archive_schema(source: pa.Schema) -> pa.Schema:
    """Return the archive's columns: the source's, arrival time, number in the batch, pipeline and batch."""
    own = [(CAME_AT, pa.timestamp("us", "UTC")), (ROW_ID, pa.int64())]
    return pa.schema([*source, *own, (ARCHIVED_BY, pa.string()), (ARCHIVED_IN, pa.int64())])


def first_id(part: int) -> int:
    """Return the number within the batch of the first row of a part."""
    return part << 40


def archived_rows(
    rows: pa.RecordBatch, came_ms: Int64s, ids: Int64s, *, pipeline: str, batch: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Convert source rows to rows of the archive, whose columns are ``schema``."""
    n = rows.num_rows
    came = pa.array(came_ms * 1000).cast(pa.timestamp("us", "UTC"))
    whose = [pa.repeat(pipeline, n), pa.repeat(pa.scalar(batch, pa.int64()), n)]
    named = pa.RecordBatch.from_arrays([*rows.columns, came, pa.array(ids), *whose], names=schema.names)
    return convert_batch(named, schema)


@dataclass(frozen=True)
class ArchiveSplit:
    """Files of the archive, in its ``folder``, whose rows a task repairs.

    With an ``owner``, the task takes only the rows of that part of R; other tasks read the same files for the other
    parts, as with `SourceSplit`.
    """

    folder: str
    files: tuple[ArchivedFile, ...]
    owner: int | None = None

    @property
    def nbytes(self) -> int:
        """Approximate bytes to read."""
        return sum(file.rows for file in self.files) * 64

    def read(self, source: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Int64s, Int64s]]:
        """Yield rows with the source's columns, their arrival times in milliseconds, and their numbers.

        The content of a copied source file was never read before, and may be damaged: this raises an Arrow error.
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
                    "the repair was committed; restore the file and start again."
                ) from error

    def _read_rows(self, file: ArchivedFile, source: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Int64s, Int64s]]:
        with pq.ParquetFile(Path(self.folder) / file.path, memory_map=False) as opened:
            for batch in opened.iter_batches(_READ_ROWS, columns=[*source.names, CAME_AT, ROW_ID]):
                came = batch.column(CAME_AT).cast(pa.int64()).to_numpy() // 1000
                rows = convert_batch(batch.select(source.names), source)
                yield rows, came, batch.column(ROW_ID).to_numpy().astype(np.int64)

    def _read_copy(
        self, file: ArchivedFile, part: int, source: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, Int64s, Int64s]]:
        """Yield the rows of one entry of a copied file; skip row groups outside of them."""
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
    """Return the layout of archive files: small enough to repair a few at a time, and quick to write under overload."""
    writing = ParquetWriting(quick=True, counted=(CAME_AT, ROW_ID))
    return replace(table.layout, file_rows=min(max(file_rows, _LEAST_FILE), _MOST_FILE), writing=writing)


def leave_archive(table: Table, batch: int, files: Sequence[ArchivedFile], emptied: Sequence[int]) -> None:
    """Remove the rows that batch ``batch`` has repaired from the archive, for good; skip rows already removed.

    A Parquet archive loses the ``files``. A Delta archive loses all rows of the batches ``emptied``, in one
    transaction: the rows of a batch repaired piece by piece stay visible there until the last of them is repaired.
    """
    if not files:
        return
    reached("before leaving the archive")
    try:
        if table.spec.format == "parquet":
            for file in files:
                (table.path / file.path).unlink(missing_ok=True)
            for folder in {(table.path / file.path).parent for file in files}:
                sync_folder(folder)
        elif emptied:
            _delete(table, batch, emptied)
    except OSError as error:
        raise PipelineError(
            f"repaired rows cannot be removed from the archive {table.path}: {error}. They are in their tables; make "
            "the archive writable and start again."
        ) from error
    reached("after leaving the archive")


def _delete(table: Table, batch: int, emptied: Sequence[int]) -> None:
    from semistream.pipelines.tables.delta import DeltaSink  # noqa: PLC0415 (comes with semistream[delta] only)

    assert isinstance(table, DeltaSink)
    numbers = ", ".join(map(str, sorted(emptied)))
    table.delete(
        f"{ARCHIVED_BY} = '{table.owner.name}' AND {ARCHIVED_IN} IN ({numbers})", f"batch {batch} repairs {numbers}"
    )
