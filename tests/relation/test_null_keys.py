"""Rows with a null key: counted, kept, and found by nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.relation import Relation
from semistream.relation.null_keys import NullKeyPages
from tests.relation.row_sets import row_set, scratch_folder

TABLE = pa.table({"a": [1, None, 2, None], "b": ["x", "y", None, None], "v": [[1], None, [], [2, 3]]})


@pytest.mark.parametrize(("key", "nulls"), [(["a"], 2), (["b"], 2), (["a", "b"], 3)])
def test_null_keys_are_counted_and_kept_but_never_found(key: list[str], nulls: int) -> None:
    with scratch_folder() as folder:
        relation = Relation.build(TABLE, folder / "r", key=key)
        assert (relation.num_rows, relation.null_key_rows) == (4, nulls)
        assert row_set(relation.scan()) == row_set(TABLE)
        found = relation.lookup(TABLE.select(key))
        assert row_set(found) == row_set(
            [row for row in TABLE.to_pylist() if all(row[name] is not None for name in key)]
        )
        assert relation.lookup(pa.table({name: pa.nulls(2, TABLE[name].type) for name in key})).num_rows == 0
        assert relation.verify().files == 2


def test_scan_gives_null_keys_last_and_of_the_columns_asked_for() -> None:
    with scratch_folder() as folder:
        relation = Relation.build(TABLE, folder / "r", key="a")
        scanned = relation.scan(["b", "a"]).read_all()
        assert scanned["a"].to_pylist() == [1, 2, None, None]
        assert sorted(map(str, scanned["b"].to_pylist()[2:])) == ["None", "y"]


def test_only_null_keys() -> None:
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": pa.nulls(3, pa.int64()), "v": [1, 2, 3]}), folder / "r", key="k")
        assert (relation.num_rows, relation.null_key_rows, relation.num_pages) == (3, 3, 0)
        assert relation.scan().read_all()["v"].to_pylist() == [1, 2, 3]
        assert relation.lookup([1]).num_rows == 0
        assert relation.update(upserts=pa.table({"k": [1], "v": [9]})).verify().rows == 4


def test_upserts_with_a_null_key_are_added_and_replace_nothing() -> None:
    with scratch_folder() as folder:
        relation = Relation.build(TABLE, folder / "r", key="a")
        more = pa.table({"a": [None, 2], "b": ["new", "two"], "v": [[9], None]}, schema=TABLE.schema)
        updated = relation.update(upserts=more, deletes=pa.array([None], pa.int64()))
        assert updated.null_key_rows == 3
        assert row_set(updated.scan()) == row_set(TABLE.take([0, 1, 3])) + row_set(more)
        twice = updated.update(upserts=more.slice(0, 1))
        assert (twice.null_key_rows, twice.num_rows, len(twice.manifest.null_files)) == (4, 6, 3)
        assert twice.verify().files == len(twice.manifest.files) + 3
        assert row_set(Relation.open(folder / "r", version=1).scan()) == row_set(TABLE)


@pytest.mark.parametrize("key", [["a"], ["b"], ["a", "b"]])
def test_as_pages_they_are_all_there_and_bounded(key: list[str]) -> None:
    rows = [
        {"a": None, "b": None, "v": [{"w": "x" * (9000 if i == 700 else i % 40)}] * (i % 3), "f": i % 2 == 0, "n": i}
        for i in range(2500)
    ]
    table = pa.Table.from_pylist(rows)
    table = table.set_column(0, "a", table["a"].cast(pa.int64())).set_column(1, "b", table["b"].cast(pa.string()))
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key=key, page_bytes=4096)
        pages = NullKeyPages(relation)
        runs = list(pages.read())
        assert len(runs) == pages.count == pages.counts.pages
        assert [run.buffer.size <= pages.largest for run in runs] == [True] * len(runs)
        assert sorted(run.buffer.size > 4096 for run in runs)[-2:] == [False, True]  # one row is wider than a page
        columns = [relation.layout.column(name) for name in table.column_names]
        gathered = [
            pa.RecordBatch.from_arrays(
                run.gather(columns, np.zeros(run.rows[0], np.int32), np.arange(run.rows[0], dtype=np.int32)),
                schema=table.schema,
            )
            for run in runs
        ]
        assert row_set(pa.Table.from_batches(gathered)) == row_set(table)
