"""Null-safe equality (<=>), by which null equals null, and conditions that are always true or never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import Relation
from semistream.errors import InvalidArgument
from tests.oracle import multiset, sql_join

ROWS = 300
_rng = np.random.default_rng(4)


def _drawn(type_: pa.DataType, rows: int) -> pa.Array:
    """Values of which a fifth is null; what lies under the nulls differs."""
    values = pa.array(_rng.integers(0, 20, rows)).cast(type_)
    return pc.if_else(pa.array(_rng.random(rows) < 0.2), pa.nulls(rows, type_), values)


def _tables(type_: pa.DataType) -> tuple[pa.Table, pa.Table]:
    stream = pa.table({"a": _drawn(type_, ROWS), "b": _drawn(pa.int32(), ROWS), "m": np.arange(ROWS)})
    return stream, pa.table({"k": _drawn(type_, ROWS), "c": _drawn(pa.int64(), ROWS), "n": np.arange(ROWS)})


WHERES = {
    "s.a <=> r.k": "s.a IS NOT DISTINCT FROM r.k",
    "s.a <=> r.k AND s.b <=> r.c": "s.a IS NOT DISTINCT FROM r.k AND s.b IS NOT DISTINCT FROM r.c",
    "s.a = r.k AND s.b <=> r.c": "s.a = r.k AND s.b IS NOT DISTINCT FROM r.c",
    "r.k <=> s.a AND s.b < r.c": "s.a IS NOT DISTINCT FROM r.k AND s.b < r.c",
    "s.a <=> r.k AND s.a = r.k": "s.a = r.k",
    "true": "true",
    "FALSE": "false",
}


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.float64(), pa.decimal128(30, 2)], ids=str)
@pytest.mark.parametrize("where", WHERES)
def test_rows_are_those_of_duckdb(where: str, type_: pa.DataType, tmp_path: Path) -> None:
    stream, table = _tables(type_)
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=1024)
    for how in ("inner", "left", "semi", "anti"):
        columns = {"columns": ["k", "c", "n"]} if how in ("inner", "left") else {}
        joined = semistream.join(stream, relation, where=where, how=how, memory="1MB", **columns).read_all()
        expected = sql_join(stream, table, WHERES[where], how, ["k", "c", "n"])
        assert multiset(joined) == multiset(expected), how


@pytest.mark.parametrize("operator", ["mesh", "adaptive_mesh", "cmesh"])
def test_plain_parquet_takes_it_as_well(operator: str, tmp_path: Path) -> None:
    stream, table = _tables(pa.string())
    pq.write_table(table, tmp_path / "r.parquet", row_group_size=50)
    terms: dict[str, Any] = {"where": "s.a <=> r.k", "columns": ["k", "n"], "operator": operator, "memory": "8MB"}
    joined = semistream.join(stream, str(tmp_path / "r.parquet"), **terms).read_all()
    assert multiset(joined) == multiset(sql_join(stream, table, WHERES["s.a <=> r.k"], "inner", ["k", "n"]))


def test_an_expression_may_be_constant(tmp_path: Path) -> None:
    stream, table = _tables(pa.int64())
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=1024)
    for value, rows in ((True, ROWS * ROWS), (False, 0), (None, 0)):
        where = pc.scalar(pa.scalar(value, pa.bool_()))
        assert semistream.join(stream, relation, where=where, memory="1MB").read_all().num_rows == rows
        assert semistream.join(stream, relation, where=where, how="anti", memory="1MB").read_all().num_rows == (
            0 if rows else ROWS
        )


def test_what_looks_rows_up_by_the_key_says_what_takes_nulls(tmp_path: Path) -> None:
    stream, table = _tables(pa.int64())
    relation = Relation.build(table, tmp_path / "r", key="k")
    with pytest.raises(InvalidArgument, match=r"'sweep'.*s\.a <=> r\.k does not restrict the key.*MeshJoin"):
        semistream.join(stream, relation, where="s.a <=> r.k", operator="sweep", memory="1MB")
