"""Build a relation at scale: Spark sorts the rows by key code, the executors write the pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from semistream.errors import InvalidArgument, RelationError
from semistream.keys import KeyCodec
from semistream.relation import Relation
from semistream.relation.build import PageOptions, key_names
from semistream.relation.column_groups import choose_groups
from semistream.relation.draft import Draft, new_version
from semistream.relation.manifest import DATA, DataFile, WholeFile
from semistream.relation.page_table import PageTable
from semistream.relation.page_writer import PageWriter, code_column
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.interpreter import require_classic, worker_interpreter
from semistream.spark.key_code import key_code
from semistream.spark.write_task import WritePlan, WrittenPart, write_part

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
