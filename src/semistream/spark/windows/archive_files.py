"""Archive of a window join on Spark: rows that left its memory, in Parquet files, and the repair of missing results."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import InvalidArgument
from semistream.spark.windows.window_plan import WindowPlan
from semistream.storage.local_files import make_folder, replace_file
from semistream.storage.local_paths import local_path
from semistream.windows import Archive, MemoryArchive, repair
from semistream.windows.join.archive import archived_schema
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import WindowLength

_PLAN = "window_join.json"


class Departures(MemoryArchive):
    """Archive in memory of the tuples that left since the last `take`."""

    def take(self) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return the tuples of both streams, and forget them."""
        taken, self._batches = self._batches, ([], [])
        return taken


def write_rows(folder: str, query: str, side: int, partition: int, batch: int, rows: list[pa.RecordBatch]) -> None:
    """Write the rows of one key partition and micro-batch to a file of their own, atomically.

    A repeated micro-batch writes the same file, or removes it if there are no rows. Each row is therefore there once,
    however often a task or query restarts.
    """
    path = Path(folder) / query / SIDES[side] / f"{partition:05d}-{batch:010d}.parquet"
    if not rows:
        path.unlink(missing_ok=True)
        return
    make_folder(path.parent)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches(rows), sink)
    replace_file(path, sink.getvalue())


def begin_archive(plan: WindowPlan) -> None:
    """Record the join in the archive's folder, as `repair_window_join` needs it; refuse the archive of another join."""
    assert plan.archive is not None
    folder = Path(plan.archive)
    make_folder(folder)
    noted: dict[str, Any] = {
        "on": plan.on,
        "suffix": plan.suffix,
        "windows": [[window.length, window.by_tuples] for window in plan.windows],
        "partitions": plan.partitions,
    }
    for side, schema in zip(SIDES, plan.schemas, strict=True):
        noted[side] = base64.b64encode(schema.serialize()).decode()
    path = folder / _PLAN
    if not path.exists():
        replace_file(path, json.dumps(noted).encode())
    elif json.loads(path.read_text()) != noted:
        raise InvalidArgument(
            f"{folder} has the archive of another window join: its columns, windows or partitions differ. Give another "
            "folder, or call window_join() as before."
        )


def repair_window_join(archive: str | Path) -> Iterator[pa.RecordBatch]:
    """Compute the results that a window join on Spark has missed, from the rows in its archive.

    Once all rows have left the memory, these and the query's own results together are the exact result, each once. A
    missed result appears only after both of its rows have left. Late rows are in neither. One key partition at a time
    is read and joined in memory (`semistream.windows.repair`).

    Parameters
    ----------
    archive : str or Path
        The folder passed to `window_join` as ``archive``.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        The missing results, with the columns of the query's results.

    Examples
    --------
    Before any row has left, nothing is missing:

    >>> import tempfile
    >>> from semistream.spark import window_join
    >>> rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    >>> spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    >>> left, right = (spark.readStream.format("rate").load().withWatermark("timestamp", "1 second") for _ in range(2))
    >>> with tempfile.TemporaryDirectory() as archive:
    ...     joined = window_join(left, right, on="value", window="1 minute", memory=1000, archive=archive)
    ...     list(repair_window_join(archive))
    []

    References
    ----------
    WINDOW 2.2 (archives: semantic load smoothing); docs/windows.md, "On Spark".
    """
    folder = local_path(archive)
    try:
        noted: dict[str, Any] = json.loads((folder / _PLAN).read_text())
    except FileNotFoundError:
        raise InvalidArgument(
            f"{folder} has no archive of a window join: {_PLAN} is missing. Give the folder passed to it as archive=."
        ) from None
    left, right = (pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted[side]))) for side in SIDES)
    for query in sorted(path for path in folder.iterdir() if path.is_dir()):
        for partition in range(noted["partitions"]):
            archived = _PartitionFiles(query, partition, noted["windows"])
            yield from repair(archived, left, right, on=noted["on"], suffix=noted["suffix"])


class _PartitionFiles(Archive):
    """Archived files of one key partition."""

    def __init__(self, folder: Path, partition: int, windows: list[list[Any]]) -> None:
        super().__init__()
        self._folder, self._partition = folder, partition
        self.begin((WindowLength(*windows[0]), WindowLength(*windows[1])))

    def _write(self, side: int, batch: pa.RecordBatch) -> None:  # noqa: ARG002
        raise AssertionError("it is only read")

    def read(self, side: int, schema: pa.Schema) -> pa.Table:
        """Return all rows of one stream that have left."""
        wanted = archived_schema(schema)
        files = sorted((self._folder / SIDES[side]).glob(f"{self._partition:05d}-*.parquet"))
        return pa.concat_tables([wanted.empty_table(), *(pq.read_table(file).cast(wanted) for file in files)])
