"""Build a relation at scale: Spark sorts the rows by key code, the executors write the pages.

What a Spark task does to build a relation: write its sorted rows as pages, in files of its own.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from semistream.errors import InvalidArgument, RelationError
from semistream.keys import KeyCodec
from semistream.pipelines.carried_types import convert_batch
from semistream.relation import Relation
from semistream.relation.format.column_groups import Groups, choose_groups
from semistream.relation.format.manifest import DATA, DataFile, WholeFile
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.format.page_table import PageTable
from semistream.relation.write.build import NullKeyRows, PageOptions, key_names, with_codes
from semistream.relation.write.page_writer import PageWriter, code_column
from semistream.relation.write.version_draft import Draft, new_version
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.key_code import key_code
from semistream.spark.session import require_classic, worker_interpreter


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


_RESULT = "part binary"


def build_relation(
    df: DataFrame,
    path: str | Path,
    *,
    key: str | Sequence[str],
    page_bytes: int | None = None,
    fill_factor: float = 1.0,
    overwrite: bool = False,
    column_groups: Sequence[Sequence[str]] | None = None,
    partitions: int | None = None,
) -> Relation:
    """Build a relation at ``path`` from a batch DataFrame, written by all executors.

    The rows are what `Relation.build` would store of them, in as many files as there are partitions: ``partitions``,
    or as many as Spark finds right. ``path`` must be one that the driver and all executors see. Rows are sorted within
    Spark's memory and spill to its local disks. With column groups each partition has a file for each of them.

    Either the whole relation is published, by one pointer swap, or nothing of it is left. A task that fails, or that
    Spark runs twice, leaves no trace: every attempt writes to files of its own in a folder of the draft, the driver
    takes over those of the attempts whose results Spark kept, and the folder is removed.
    """
    df = require_classic(df)
    if df.isStreaming:
        raise InvalidArgument("df is a streaming DataFrame; build the relation from a batch one, then update it.")
    if partitions is not None and partitions < 1:
        raise InvalidArgument(f"partitions is {partitions}; it must be at least 1.")
    schema = arrow_schema_of(df)
    names = key_names(key, schema)
    groups = choose_groups(schema, names, column_groups)
    options = PageOptions(page_bytes, fill_factor, groups=len(groups))
    codec = KeyCodec.of(names, [schema.field(name).type for name in names])
    folder = Path(path).absolute()
    with new_version(folder, create=True, overwrite=overwrite) as draft:
        (draft.scratch / DATA).mkdir(parents=True)
        plan = WritePlan(str(draft.scratch), draft.version, schema, names, options.fill_bytes, groups)
        parts = _run(_sorted(df, names, codec, partitions), plan)
        files, table, null_files = _take_over(draft, parts)
        if not files:
            files, table = _empty_files(draft, plan)
        draft.publish(
            key=names,
            schema=schema,
            page_bytes=options.page_bytes,
            fill_factor=fill_factor,
            files=files,
            table=table,
            null_files=null_files,
            null_key_rows=sum(part.null_rows for part in parts),
            column_groups=groups,
        )
    return Relation.open(folder)


def _sorted(df: DataFrame, names: tuple[str, ...], codec: KeyCodec, partitions: int | None) -> DataFrame:
    """The rows in ascending order of codes: between partitions and within them, one code never in two."""
    numbered = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    positions = [df.columns.index(name) for name in names]
    code = key_code([sf.col(f"c{i}") for i in positions], [df.schema[i].dataType for i in positions], codec)
    coded = numbered.withColumn("code", code)
    ranged = coded.repartitionByRange("code") if partitions is None else coded.repartitionByRange(partitions, "code")
    return ranged.sortWithinPartitions("code").drop("code")


def _run(rows: DataFrame, plan: WritePlan) -> list[WrittenPart]:
    """Write all partitions; exactly one attempt of each has its result here, whatever was run twice."""
    with worker_interpreter(rows.sparkSession):
        written = rows.mapInArrow(partial(_write, plan), _RESULT)
    return [WrittenPart.from_bytes(row["part"]) for row in written.collect()]


def _write(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return write_part(plan, batches)


def _take_over(draft: Draft, parts: list[WrittenPart]) -> tuple[list[DataFile], PageTable, list[WholeFile]]:
    """Move the files of the draft's parts to where the version refers to them, in the order of their codes."""
    filled = sorted((part for part in parts if part.files), key=lambda part: int(part.table.first_code[0]))
    files = [file for part in filled for file in part.files]
    tables = [part.table.with_files(np.full(len(part.table), i, np.int32)) for i, part in enumerate(filled)]
    null_files = [part.null_file for part in parts if part.null_file is not None]
    table = PageTable.concat(tables) if tables else PageTable.empty()
    if (table.last_code[:-1] > table.first_code[1:]).any():
        raise RelationError(
            "Spark's partitions overlap in their key codes. This is a bug in semistream; please report it."
        )
    for name in [*(file.name for file in files), *(file.name for file in null_files)]:
        written = draft.scratch / name
        if not written.exists():
            raise RelationError(
                f"an executor wrote {written}, but the driver does not see it. Give a path on a file system that the "
                "driver and all executors share."
            )
        draft.adopt(name)
        written.rename(draft.folder / name)
    return files, table, null_files


def _empty_files(draft: Draft, plan: WritePlan) -> tuple[list[DataFile], PageTable]:
    """The files of a relation without rows that can be joined: readers expect one to probe the disk with."""
    layout = plan.layout
    names = draft.name_files("0", len(layout.segments))
    paths = [draft.folder / name for name in names]
    return PageWriter(paths, layout, code_column(layout, plan.key), page_bytes=plan.fill_bytes).close(names, 0)
