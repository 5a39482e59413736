"""What a Spark task does to build a relation: write its sorted rows as pages, in files of its own."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from semistream.errors import RelationError
from semistream.etl.carried_types import convert_batch
from semistream.keys import KeyCodec
from semistream.relation.build import NullKeyRows, with_codes
from semistream.relation.column_groups import Groups
from semistream.relation.draft import Draft
from semistream.relation.manifest import DATA, DataFile, WholeFile
from semistream.relation.page_layout import PageLayout
from semistream.relation.page_table import PageTable
from semistream.relation.page_writer import PageWriter, code_column


@dataclass(frozen=True)
class WritePlan:
    """What the tasks of one build share: the folder to write under, and what pages are like."""

    scratch: str
    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    fill_bytes: int
    column_groups: Groups = ()

    @property
    def codec(self) -> KeyCodec:
        """How key columns become codes."""
        return KeyCodec.of(self.key, [self.schema.field(name).type for name in self.key])

    @property
    def layout(self) -> PageLayout:
        """What pages are like."""
        return PageLayout.of(self.schema, self.key, self.codec, self.column_groups)


@dataclass(frozen=True)
class WrittenPart:
    """What one attempt of a task wrote: a file of pages for each column group, or none, and rows with a null key.

    Names are relative to the scratch folder, and later to the relation's.
    """

    files: list[DataFile]
    table: PageTable
    null_file: WholeFile | None
    null_rows: int

    def to_bytes(self) -> bytes:
        """The form in which it goes to the driver."""
        return pickle.dumps(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> WrittenPart:
        """What a task has sent; it comes from this build's own code, on this cluster."""
        part = pickle.loads(content)
        assert isinstance(part, cls)
        return part


def write_part(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition, which come in the order of their codes; gives one row, a `WrittenPart`.

    Each call draws file names of its own, so attempts of one task never meet, and when it raises it removes what it
    wrote. If it is killed, the driver removes the folder.
    """
    _require_folder(plan)
    codec, layout = plan.codec, plan.layout
    attempt = Draft(Path(plan.scratch), plan.version)  # draws a token, and names files by it
    names = attempt.name_files("part", len(layout.segments))
    paths = [attempt.folder / name for name in names]
    nulls = NullKeyRows(attempt, plan.schema)
    by = code_column(layout, plan.key)
    writer = PageWriter(paths, layout, by, page_bytes=plan.fill_bytes)
    try:
        rows = (convert_batch(batch, plan.schema) for batch in batches)
        for batch in _in_order(with_codes(rows, plan.key, codec, layout, nulls), by):
            writer.write(batch)
        files, table = writer.close(names, 0)
        null_files = nulls.close()
    except BaseException:
        writer.abandon()
        nulls.abandon()
        attempt.discard()
        raise
    if len(table) == 0:
        for path in paths:
            path.unlink()
    part = WrittenPart(files if len(table) else [], table, null_files[0] if null_files else None, nulls.rows)
    if part.files or part.null_file is not None:
        yield pa.record_batch({"part": pa.array([part.to_bytes()], pa.binary())})


def _require_folder(plan: WritePlan) -> None:
    if not (Path(plan.scratch) / DATA).is_dir():
        raise RelationError(
            f"{plan.scratch} cannot be seen on {socket.gethostname()}, or the build has ended. Give a path on a file "
            "system that the driver and all executors share."
        )


def _in_order(batches: Iterator[pa.RecordBatch], by: str) -> Iterator[pa.RecordBatch]:
    """The batches, or an error if codes ever fall: the JVM sorted by what it takes the codes to be."""
    last = None
    for batch in batches:
        codes = batch.column(by).view(pa.int64()).to_numpy()
        if codes.size:
            if (codes[1:] < codes[:-1]).any() or (last is not None and codes[0] < last):
                raise RelationError(
                    "Spark sorted rows in another order than that of their key codes. "
                    "This is a bug in semistream; please report it."
                )
            last = codes[-1]
        yield batch
