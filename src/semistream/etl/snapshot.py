"""What a snapshot's end takes: the rows that are no longer there, and the relation that becomes the new snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.etl.changes import DELETED, ChangesPlan, load_met, unmet_rows
from semistream.etl.faults import reached
from semistream.etl.ledger_entries import Work, WrittenFile
from semistream.etl.table_writer import TableLayout, TableWriter
from semistream.etl.update_rows import last_of_keys
from semistream.relation import Change, Relation, Transaction

UPSERTS, DELETES, MET = "upserts", "deletes", "met"
"""Files in the folder of rows: rows that are new, keys that are gone, and which rows were met."""
WITHHELD = "deletes_withheld"
"""The count of rows that nobody has met, in a snapshot of which some rows could not be read or are invalid."""


def end_snapshot(
    relation: Relation, plan: ChangesPlan, work: Work, folder: Path, joined: TableLayout, prefix: str
) -> Work:
    """What the work for a snapshot came to, with the rows of the one before that nobody has met: they were deleted.

    Unless a row of the snapshot is invalid: it may be one of those, so none of them is taken for deleted, and all stay.
    """
    met = load_met([folder / file.path for file in work.files.get(MET, [])], relation.num_rows)
    if work.outcomes.get("invalid"):
        unmet = sum(rows.num_rows for rows in unmet_rows(relation, met))
        return replace(work, counts={**work.counts, DELETED: 0, WITHHELD: unmet})
    gone = TableWriter(TableLayout(str(folder), _keys(relation)), f"{prefix}-{DELETES}")
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


def publish_snapshot(relation: Relation, work: Work, folder: Path, transaction: Transaction) -> Relation:
    """Let the relation be the new snapshot, once for each transaction."""

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


def _keys(relation: Relation) -> pa.Schema:
    return pa.schema([relation.schema.field(name) for name in relation.key])


def _read(folder: Path, files: list[WrittenFile]) -> pa.Table | None:
    return pa.concat_tables(_tables(folder, files)) if files else None


def _tables(folder: Path, files: list[WrittenFile]) -> Iterator[pa.Table]:
    for file in files:
        yield pq.read_table(folder / file.path)
