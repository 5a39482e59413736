"""Change detection: compare each snapshot of a source table with the previous one, which is kept as a relation.

`ChangeChain` classifies rows as inserted, updated or unchanged. At the end of a snapshot, `end_snapshot` finds the
deleted rows, and `publish_snapshot` turns the relation into the new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from semistream.joins.base import SemiStreamJoin
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.pipelines.ledger.entries import TaskResult, WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.steps.chain import Stopped
from semistream.pipelines.steps.key_relation import key_schema
from semistream.pipelines.steps.update_rows import last_of_keys
from semistream.pipelines.tables.writer import TableLayout, TableWriter
from semistream.relation import Change, PageRun, Relation, Transaction

INSERTED, UPDATED, UNCHANGED, DELETED = "inserted", "updated", "unchanged", "deleted"
BEFORE = "__before"
"""Suffix of the column names of the previous snapshot."""


@dataclass(frozen=True)
class ChangesPlan:
    """Settings of change detection: rows are updated if one of the columns ``compared`` differs.

    Rows of the kinds ``emit`` go on, with their kind in the column ``into``. The first ``width`` columns of the join's
    results are those of the row; the column ``marker`` has R's key, null for inserted rows.
    """

    width: int
    marker: str
    compared: tuple[str, ...]
    into: str
    emit: tuple[str, ...]


class MetRows:
    """One bit for each row of R, set once a tuple of the stream matches it."""

    def __init__(self, relation: Relation) -> None:
        self._first = first_rows(relation)
        self.bits: Bools = np.zeros(int(self._first[-1]), np.bool_)

    def meet(self, run: PageRun, page: Int32s, row: Int32s) -> None:
        """Record joined pairs, by page within the run and row within the page."""
        self.bits[self._first[run.pages[page]] + row] = True

    def save(self, path: Path) -> None:
        """Write the bits to a file, eight to a byte."""
        with path.open("wb") as file:
            np.save(file, np.packbits(self.bits))


def first_rows(relation: Relation) -> Int64s:
    """Return the number of the first row of each page, followed by the number of rows."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(relation.table.rows, dtype=np.int64)])


def load_met(paths: Sequence[Path], rows: int) -> Bools:
    """Return a mask of the rows of R that any task has matched."""
    met = np.zeros(rows, np.bool_)
    for path in paths:
        met |= np.unpackbits(np.load(path), count=rows).astype(np.bool_)
    return met


def unmet_rows(relation: Relation, met: Bools) -> Iterator[pa.RecordBatch]:
    """Yield the rows of R that no task has matched; read only their pages."""
    first = first_rows(relation)
    missed = np.flatnonzero(np.add.reduceat(~met, first[:-1])) if met.size else np.zeros(0, np.intp)
    for run in relation.read_pages(missed):
        for position, page in enumerate(run.pages.tolist()):
            rows = run.batch(position, relation.schema.names)
            unmet = pa.array(~met[first[page] : first[page] + rows.num_rows])
            copied = pa.concat_batches([rows.filter(unmet), rows.slice(0, 0)])
            yield pa.RecordBatch.from_arrays(copied.columns, schema=relation.schema)


class ChangeChain:
    """Classifier of rows by a left join with the previous snapshot; inserted and updated rows are kept as upserts.

    It has the methods of a `Chain` with one link.
    """

    def __init__(self, plan: ChangesPlan, join: SemiStreamJoin, source: pa.Schema, upserts: TableWriter) -> None:
        self._plan, self._join, self._source, self._upserts = plan, join, source, upserts
        self.counts = dict.fromkeys((INSERTED, UPDATED, UNCHANGED), 0)

    def push(self, rows: pa.RecordBatch, _: int = 0) -> Iterator[Stopped]:
        """Push rows of the snapshot, and yield classified rows."""
        for results in self._join.push(rows):
            yield from self._classed(results)

    def flush(self) -> Iterator[Stopped]:
        """Yield the classified rows still inside the join."""
        for results in self._join.flush():
            yield from self._classed(results)

    def _classed(self, results: pa.RecordBatch) -> Iterator[Stopped]:
        plan = self._plan
        rows, kinds = results.select(range(plan.width)), self._kinds(results)
        for kind in self.counts:
            self.counts[kind] += int(np.count_nonzero(kinds == kind))
        new = pa.array(kinds != UNCHANGED)
        upserts = rows.select(self._source.names).filter(new)
        if upserts.num_rows:
            self._upserts.write(pa.RecordBatch.from_arrays(upserts.columns, schema=self._source))
        emitted = pa.array(np.isin(kinds, plan.emit))
        going = rows.append_column(plan.into, pa.array(kinds.astype(object), pa.string())).filter(emitted)
        if going.num_rows:
            yield Stopped(going, "joined", 1)
        silent = rows.filter(pc.invert(emitted))
        if silent.num_rows:
            yield Stopped(silent, "silent", 1)

    def _kinds(self, results: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        known = results.column(self._plan.marker).is_valid().to_numpy(zero_copy_only=False)
        differs = np.zeros(results.num_rows, np.bool_)
        for name in self._plan.compared:
            differs |= ~same_values(results.column(name), results.column(f"{name}{BEFORE}"))
        return np.where(known, np.where(differs, UPDATED, UNCHANGED), INSERTED)


def same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Return a mask of equal values; two nulls are equal, and so are two NaN.

    >>> same_values(pa.array([1.0, None, float("nan"), 2.0]), pa.array([1.0, None, float("nan"), None])).tolist()
    [True, True, True, False]
    """
    same = pc.fill_null(pc.equal(left, right), False)
    same = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.fill_null(pc.is_nan(left), False), pc.fill_null(pc.is_nan(right), False))
        same = pc.or_(same, nan)
    found: Bools = same.to_numpy(zero_copy_only=False)
    return found


UPSERTS, DELETES, MET = "upserts", "deletes", "met"
"""Kinds of files in the folder of rows: inserted and updated rows, deleted keys, and bits of matched rows."""
WITHHELD = "deletes_withheld"
"""Count of unmatched rows that do not count as deleted because the snapshot has invalid or unreadable rows."""


def end_snapshot(
    relation: Relation, plan: ChangesPlan, work: TaskResult, folder: Path, joined: TableLayout, prefix: str
) -> TaskResult:
    """Add the deleted rows to the result of a snapshot: rows of the previous one without a match.

    If a row of the snapshot is invalid, it may be one of these: then none counts as deleted, and all stay.
    """
    met = load_met([folder / file.path for file in work.files.get(MET, [])], relation.num_rows)
    if work.outcomes.get("invalid"):
        unmet = sum(rows.num_rows for rows in unmet_rows(relation, met))
        return replace(work, counts={**work.counts, DELETED: 0, WITHHELD: unmet})
    gone = TableWriter(TableLayout(str(folder), key_schema(relation)), f"{prefix}-{DELETES}")
    told = TableWriter(joined, prefix)
    deleted = 0
    try:
        for rows in unmet_rows(relation, met):
            deleted += rows.num_rows
            gone.write(rows.select(list(relation.key)))
            if DELETED in plan.emit:
                told.write(_as_deleted(rows, plan, joined.schema))
        files = {**work.files, DELETES: gone.close(), "joined": work.files.get("joined", []) + told.close()}
    except BaseException:
        gone.abandon()
        told.abandon()
        raise
    return replace(work, files=files, counts={**work.counts, DELETED: deleted})


def publish_snapshot(relation: Relation, work: TaskResult, folder: Path, transaction: Transaction) -> Relation:
    """Turn the relation into the new snapshot, once for each transaction."""

    def change(current: Relation) -> Change:
        upserts = _read(folder, work.files.get(UPSERTS, []))
        if upserts is not None:
            upserts = upserts.take(last_of_keys(upserts, current.key))
        return Change(upserts=upserts, deletes=_read(folder, work.files.get(DELETES, [])))

    if not work.files.get(UPSERTS) and not work.files.get(DELETES):
        return relation
    reached("before snapshot")
    published = relation.change(change, transaction)
    reached("after snapshot")
    return published


def _as_deleted(rows: pa.RecordBatch, plan: ChangesPlan, schema: pa.Schema) -> pa.RecordBatch:
    kinds = pa.repeat(DELETED, rows.num_rows)
    columns = [kinds if name == plan.into else rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(
        [column.cast(f.type) for column, f in zip(columns, schema, strict=True)], schema=schema
    )


def _read(folder: Path, files: list[WrittenFile]) -> pa.Table | None:
    return pa.concat_tables(_tables(folder, files)) if files else None


def _tables(folder: Path, files: list[WrittenFile]) -> Iterator[pa.Table]:
    for file in files:
        yield pq.read_table(folder / file.path)
