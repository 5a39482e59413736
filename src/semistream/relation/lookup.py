"""Look keys up in a relation: only the pages that may hold them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.relation.key_set import KeySet

if TYPE_CHECKING:
    from semistream.relation.relation import Relation

_RUN_BYTES = 1 << 20


def lookup_rows(relation: Relation, keys: Any, columns: list[str]) -> pa.Table:
    """See `Relation.lookup`."""
    wanted = KeySet.of(relation, keys)
    pages = np.flatnonzero(relation.table.pages_holding(wanted.codes))
    schema = pa.schema([relation.schema.field(name) for name in columns])
    layouts = [relation.layout.column(name) for name in columns]
    found = []
    for run in relation.read_pages(pages, run_bytes=_RUN_BYTES):
        chosen = np.flatnonzero(wanted.flag_rows(run))
        ends = np.cumsum(run.rows)
        page = np.searchsorted(ends, chosen, "right").astype(np.int32)
        row = (chosen - (ends - run.rows)[page]).astype(np.int32)
        found.append(pa.RecordBatch.from_arrays(run.gather(layouts, page, row), schema=schema))
    return pa.Table.from_batches(found, schema)
