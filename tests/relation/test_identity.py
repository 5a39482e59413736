"""Relations compare by what they read: the version, the pages, the columns. Equal ones have equal hashes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream import ParquetRelation, Relation


def test_versions_parts_and_column_groups_are_told_apart(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(5_000), "v": np.arange(5_000), "w": np.arange(5_000)})
    first = Relation.build(table, tmp_path / "r", key="id", page_bytes=1024, column_groups=[["id", "v"], ["w"]])
    second = first.update(deletes=[7])
    other = Relation.build(table, tmp_path / "other", key="id", page_bytes=1024)
    apart = [first, second, other, first.part(None, 100), first.part(100, None), first.reading(["v"])]
    assert len(set(apart)) == len(apart)
    again = Relation.open(first.path, 1)
    assert again == first
    assert hash(again) == hash(first) == hash(pickle.loads(pickle.dumps(first)))
    assert {first: 1}[again] == 1
    assert first != "r"


def test_parquet_is_the_same_until_it_is_rewritten_or_narrowed(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(50_000), "v": np.arange(50_000)})
    pq.write_table(table, tmp_path / "r.parquet", row_group_size=1_000)
    first = ParquetRelation.open(tmp_path / "r.parquet")
    assert first == ParquetRelation.open(tmp_path / "r.parquet")
    pq.write_table(table.slice(1), tmp_path / "r.parquet")
    apart = [first, first.reading(["v"]), ParquetRelation.open(tmp_path / "r.parquet")]
    assert len(set(apart)) == len(apart)
    assert first != 1
