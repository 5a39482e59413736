"""Rows of updates that were no use, for the quarantine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.etl.invalid_rows import INVALID_SCHEMA
from semistream.etl.ledger_entries import Plan, Work
from semistream.etl.table_writer import TableLayout, TableWriter


def with_rejected(work: Work, plan: Plan, folder: Path, quarantine: TableLayout) -> Work:
    """The work for a batch with rows of updates that its plan names, which lie in a ``folder``."""
    writer = TableWriter(quarantine, f"{plan.batch:012d}-0")
    rows = 0
    for name in plan.rejected:
        table = pq.read_table(folder / name)
        rows += table.num_rows
        numbers = pa.repeat(pa.scalar(plan.batch, pa.int64()), table.num_rows)
        columns = [column.combine_chunks() for column in table.columns]
        writer.write(pa.RecordBatch.from_arrays([*columns, numbers], schema=INVALID_SCHEMA))
    files = {**work.files, "invalid": work.files.get("invalid", []) + writer.close()}
    return replace(work, files=files, counts={**work.counts, "invalid_updates": rows})
