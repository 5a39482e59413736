"""Small adaptive joins for tests: a stream tuple has a partner on each page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream import AdaptiveMeshJoin, Relation
from semistream.joins.loop import Results
from semistream.relation import AnyRelation
from tests.joins.clocks import FakeClock

KEY = 7
STREAM = pa.schema([("s", pa.int64()), ("tuple", pa.int64())])


def partners_on_every_page(folder: Path, pages: int) -> Relation:
    """So many pages of one row each, all with the same key: a stream tuple has one partner on each page."""
    rows = pa.table({"k": [KEY] * pages, "page": range(pages), "filler": [b"\x00" * 3400] * pages})
    relation = Relation.build(rows, folder / "r", key="k", page_bytes=4096)
    assert relation.num_pages == pages
    return relation


def tuples(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([[KEY] * len(numbers), list(numbers)], schema=STREAM)


def meetings(results: Results) -> list[tuple[int, int]]:
    """The pairs (stream tuple, page) in the results."""
    return [pair for b in results for pair in zip(b["tuple"].to_pylist(), b["page"].to_pylist(), strict=True)]


def adaptive(relation: AnyRelation, kind: Any = AdaptiveMeshJoin, **options: Any) -> Any:
    options = {
        "on": {"s": "k"},
        "memory": "1MB",
        "columns": ["page"],
        "clock": FakeClock(),
        "half_life_s": 0.3,
        **options,
    }
    return kind(relation, STREAM, **options)


def many_pages(folder: Path, pages: int = 120, rows_per_page: int = 4) -> Relation:
    rows = pages * rows_per_page
    table = pa.table({"k": range(rows), "page": range(rows), "filler": [b"\x00" * (3400 // rows_per_page)] * rows})
    relation = Relation.build(table, folder / "r", key="k", page_bytes=4096)
    assert relation.num_pages == pages
    return relation
