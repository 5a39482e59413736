"""Rows that left a window join on Spark: Parquet files by micro-batch and key partition, and the missing results."""

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
from semistream.storage.local_files import replace_file
from semistream.windows import Archive, MemoryArchive, repair
from semistream.windows.join.archive import archived_schema
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import WindowLength

_PLAN = "window_join.json"


class Departures(MemoryArchive):
    """Keeps the tuples that left since they were last taken."""

    def take(self) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Those of both streams; they are not kept any longer."""
        taken, self._batches = self._batches, ([], [])
        return taken


def write_rows(folder: str, query: str, side: int, partition: int, batch: int, rows: list[pa.RecordBatch]) -> None:
    """Put the rows of one key partition and micro-batch into a file of their own; it is there as a whole or not at all.

    A micro-batch that is done again writes the same file, and removes it if there is nothing to be written: however
    often a task or a query is restarted, each row is there once.
    """
    path = Path(folder) / query / SIDES[side] / f"{partition:05d}-{batch:010d}.parquet"
    if not rows:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches(rows), sink)
    replace_file(path, sink.getvalue())


def begin_archive(plan: WindowPlan) -> None:
    """Note in the archive's folder what join it is of, so that it can be repaired; another join's is refused."""
    assert plan.archive is not None
    folder = Path(plan.archive)
    folder.mkdir(parents=True, exist_ok=True)
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
            f"{folder} has the archive of another window join: its columns, its windows or its partitions are not "
            "these. Give another folder, or call window_join() as before."
        )


def repair_window_join(archive: str | Path) -> Iterator[pa.RecordBatch]:
    """The results that a window join on Spark has missed, of the rows that are in its archive.

    With what the query gave they are the exact result, each row once, as soon as all rows have left the memory: a
    result of which one row is still there comes when that row has left. Rows that came late are in neither. A key
    partition is read and joined in memory at a time (`semistream.windows.repair`).

    >>> missing = pa.Table.from_batches(repair_window_join("warehouse/left-the-memory"))  # doctest: +SKIP
    """
    folder = Path(archive)
    try:
        noted: dict[str, Any] = json.loads((folder / _PLAN).read_text())
    except FileNotFoundError:
        raise InvalidArgument(
            f"{folder} has no archive of a window join: there is no {_PLAN} in it. Give the folder that archive= named."
        ) from None
    left, right = (pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted[side]))) for side in SIDES)
    for query in sorted(path for path in folder.iterdir() if path.is_dir()):
        for partition in range(noted["partitions"]):
            archived = _PartitionFiles(query, partition, noted["windows"])
            yield from repair(archived, left, right, on=noted["on"], suffix=noted["suffix"])


class _PartitionFiles(Archive):
    """The files of one key partition."""

    def __init__(self, folder: Path, partition: int, windows: list[list[Any]]) -> None:
        super().__init__()
        self._folder, self._partition = folder, partition
        self.begin((WindowLength(*windows[0]), WindowLength(*windows[1])))

    def _write(self, side: int, batch: pa.RecordBatch) -> None:  # noqa: ARG002
        raise AssertionError("it is only read")

    def read(self, side: int, schema: pa.Schema) -> pa.Table:
        """All that has left of one stream."""
        wanted = archived_schema(schema)
        files = sorted((self._folder / SIDES[side]).glob(f"{self._partition:05d}-*.parquet"))
        return pa.concat_tables([wanted.empty_table(), *(pq.read_table(file).cast(wanted) for file in files)])
