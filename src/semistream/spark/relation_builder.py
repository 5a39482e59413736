"""Build a relation with Spark.

Spark sorts the rows by key code. Each task writes the pages of its partition to files of its own, and the driver
publishes them as one version.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
from semistream.relation.write.page_writer import PageWriter
from semistream.relation.write.version_draft import Draft, new_version
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.key_code import key_code
from semistream.spark.session import require_classic, worker_interpreter
from semistream.spark.sql_rules import require_binary_collation
from semistream.storage.local_paths import local_path

_ABOUT = b"semistream.part"  # key of the metadata


@dataclass(frozen=True)
class WritePlan:
    """Settings that all tasks of a build share: the scratch folder, the schema and key, and the page layout."""

    scratch: str
    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    fill_bytes: int
    column_groups: Groups = ()

    @property
    def codec(self) -> KeyCodec:
        """Codec that turns key columns into codes."""
        return KeyCodec.of(self.key, [self.schema.field(name).type for name in self.key])

    @property
    def layout(self) -> PageLayout:
        """Layout of the pages."""
        return PageLayout.of(self.schema, self.key, self.codec, self.column_groups)


@dataclass(frozen=True)
class WrittenPart:
    """Files that one attempt of a task wrote: pages, one file per column group, and rows with a null key.

    ``files`` is empty if no row has a key. Names are relative to the scratch folder, and after the move to the
    relation's folder.
    """

    files: list[DataFile]
    table: PageTable
    null_file: WholeFile | None
    null_rows: int

    def to_bytes(self) -> bytes:
        """Serialize for the driver: the page table as Arrow, with all else as JSON in its metadata."""
        files = [asdict(file) for file in self.files]
        null_file = None if self.null_file is None else asdict(self.null_file)
        groups = len(self.table.segments)
        about = {"files": files, "null_file": null_file, "null_rows": self.null_rows, "groups": groups}
        table = self.table.to_arrow().replace_schema_metadata({_ABOUT: json.dumps(about)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    @classmethod
    def from_bytes(cls, content: bytes) -> WrittenPart:
        """Read a task's result; raise `RelationError` if it is none."""
        try:
            table = pa.ipc.open_stream(content).read_all()
            about = json.loads(table.schema.metadata[_ABOUT])
            files = [DataFile(**each) for each in about["files"]]
            null_file = None if about["null_file"] is None else WholeFile(**about["null_file"])
            pages = PageTable.from_arrow(table, range(int(about["groups"])))
            return cls(files, pages, null_file, int(about["null_rows"]))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RelationError(
                f"a task's result of {len(content)} bytes cannot be read ({error!r}). Nothing was published. Build "
                "again, with the same version of semistream on the driver and all executors."
            ) from error


def write_part(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition, sorted by key code, as pages; yield one row with the `WrittenPart`.

    Each call draws unique file names, so attempts of one task never collide, and removes its files if it fails. If the
    task is killed, the driver removes the scratch folder. A partition without rows yields nothing.
    """
    _require_folder(plan)
    codec, layout = plan.codec, plan.layout
    attempt = Draft(Path(plan.scratch), plan.version)  # draws a token for its file names
    names = attempt.name_files("part", len(layout.segments))
    paths = [attempt.folder / name for name in names]
    nulls = NullKeyRows(attempt, plan.schema)
    by = layout.code_column
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
            f"{plan.scratch} does not exist on {socket.gethostname()}: the path is not shared, or the build has ended. "
            "Give a path on a file system that the driver and all executors share."
        )


def _in_order(batches: Iterator[pa.RecordBatch], by: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise `RelationError` if a code is less than the one before.

    The JVM sorted by codes of its own (`key_code`), so this checks that they agree with Python's.
    """
    last = None
    for batch in batches:
        codes = batch.column(by).view(pa.int64()).to_numpy()
        if codes.size:
            if (codes[1:] < codes[:-1]).any() or (last is not None and codes[0] < last):
                raise RelationError(
                    "Spark did not sort the rows by their key codes. This is a bug in semistream; please report it."
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
    """Build a relation at ``path`` from a batch DataFrame; all executors write it in parallel.

    The relation has the same rows as one that `Relation.build` makes, in as many files as there are partitions, times
    the number of column groups. Spark sorts the rows in its own memory, and spills to its local disks.

    Either the whole relation is published, by one pointer swap, or nothing remains. Failed tasks, and tasks that Spark
    runs twice, leave no trace: every attempt writes files of its own in a scratch folder, the driver moves those of the
    attempts whose results Spark kept, and removes the folder.

    Parameters
    ----------
    df : DataFrame
        Rows of R; a batch DataFrame.
    path : str or Path
        Folder of the relation, on a file system that the driver and all executors share.
    key : str or sequence of str
        Key columns, by which rows are sorted and found.
    page_bytes : int, optional
        The most bytes of a page; by default 64 KiB, or 40 KiB per column group if that is more.
    fill_factor : float
        Share of a page to fill, from 0.1 to 1; the rest leaves room for updates.
    overwrite : bool
        True to replace a relation that exists at ``path``.
    column_groups : sequence of sequences of str, optional
        Columns to store together; by default as `Relation.build` chooses.
    partitions : int, optional
        Tasks that write; by default Spark chooses.

    Returns
    -------
    Relation
        The relation, open for reading.

    Examples
    --------
    >>> import tempfile
    >>> products = spark.createDataFrame([(2, "cola"), (1, "tea")], "id long, name string")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relation = build_relation(products, f"{folder}/products", key="id", partitions=1)
    ...     relation.num_rows, relation.key
    (2, ('id',))

    References
    ----------
    docs/architecture.md, "R on disk".
    """
    df = require_classic(df)
    if df.isStreaming:
        raise InvalidArgument("df is a streaming DataFrame; build the relation from a batch one, then update it.")
    if partitions is not None and partitions < 1:
        raise InvalidArgument(f"partitions is {partitions}; it must be at least 1.")
    schema = arrow_schema_of(df)
    names = key_names(key, schema)
    for name in names:
        require_binary_collation(df.schema[name])
    groups = choose_groups(schema, names, column_groups)
    options = PageOptions(page_bytes, fill_factor, groups=len(groups))
    codec = KeyCodec.of(names, [schema.field(name).type for name in names])
    folder = local_path(path).absolute()
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
    """Sort the rows by key code, across partitions and within them; all rows of a code are in one partition."""
    numbered = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    positions = [df.columns.index(name) for name in names]
    code = key_code([sf.col(f"c{i}") for i in positions], [df.schema[i].dataType for i in positions], codec)
    coded = numbered.withColumn("code", code)
    ranged = coded.repartitionByRange("code") if partitions is None else coded.repartitionByRange(partitions, "code")
    return ranged.sortWithinPartitions("code").drop("code")


def _run(rows: DataFrame, plan: WritePlan) -> list[WrittenPart]:
    """Write all partitions; return the result of exactly one attempt of each task, even if Spark ran some twice."""
    with worker_interpreter(rows.sparkSession):
        written = rows.mapInArrow(partial(write_part, plan), _RESULT)
    return [WrittenPart.from_bytes(row["part"]) for row in written.collect()]


def _take_over(draft: Draft, parts: list[WrittenPart]) -> tuple[list[DataFile], PageTable, list[WholeFile]]:
    """Move the parts' files into the relation's folder; return them and their page table in the order of key codes."""
    filled = sorted((part for part in parts if part.files), key=lambda part: int(part.table.first_code[0]))
    files = [file for part in filled for file in part.files]
    tables = [part.table.with_files(np.full(len(part.table), i, np.int32)) for i, part in enumerate(filled)]
    null_files = [part.null_file for part in parts if part.null_file is not None]
    table = PageTable.concat(tables) if tables else PageTable.empty()
    if (table.last_code[:-1] > table.first_code[1:]).any():
        raise RelationError(
            "the key codes of Spark's partitions overlap. This is a bug in semistream; please report it."
        )
    for name in [*(file.name for file in files), *(file.name for file in null_files)]:
        written = draft.scratch / name
        if not written.exists():
            raise RelationError(
                f"an executor wrote {written}, but the driver cannot find it. Give a path on a file system that the "
                "driver and all executors share."
            )
        draft.adopt(name)
        written.rename(draft.folder / name)
    return files, table, null_files


def _empty_files(draft: Draft, plan: WritePlan) -> tuple[list[DataFile], PageTable]:
    """Write empty page files for a relation without joinable rows: readers need one to probe the disk."""
    layout = plan.layout
    names = draft.name_files("0", len(layout.segments))
    paths = [draft.folder / name for name in names]
    return PageWriter(paths, layout, layout.code_column, page_bytes=plan.fill_bytes).close(names, 0)
