"""The columns of R in a result: one name, several, or new names; everywhere they are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import MeshJoin, ParquetRelation, Relation
from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.tuning.candidates import OPERATORS
from tests.oracle import multiset

ORDERS = pa.table({"product": [3, 1, 9], "amount": [5, 6, 7]})
PRODUCTS = pa.table({"id": [1, 2, 3], "name": ["tea", "cola", "milk"], "price": [10, 20, 30], "amount": [4, 5, 6]})
RENAMED = {"price": "unit_price", "id": "number", "amount": "stock"}


@pytest.fixture
def products(tmp_path: Path) -> Relation:
    return Relation.build(PRODUCTS, tmp_path / "products", key="id")


def joined(relation: Relation | ParquetRelation, columns: Any, **options: Any) -> pa.Table:
    return semistream.join(ORDERS, relation, on={"product": "id"}, columns=columns, **options).read_all()


@pytest.mark.parametrize("operator", ["auto", *OPERATORS])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_mapping_renames(products: Relation, operator: str, how: str) -> None:
    result = joined(products, RENAMED, operator=operator, how=how)
    assert result.column_names == ["product", "amount", "unit_price", "number", "stock"]
    named = joined(products, list(RENAMED), operator=operator, how=how)
    assert multiset(result) == multiset(named)
    assert result.num_rows == (2 if how == "inner" else 3)


def test_a_mapping_renames_columns_of_parquet_in_order_and_with_deadlines(products: Relation, tmp_path: Path) -> None:
    pq.write_table(PRODUCTS, tmp_path / "r.parquet")
    parquet = ParquetRelation.open(tmp_path / "r.parquet")
    for relation in (products, parquet):
        options = {"operator": "mesh", "ordered": True, "deadline_s": 5.0}
        assert joined(relation, {"name": "title"}, **options).to_pylist() == [
            {"product": 3, "amount": 5, "title": "milk"},
            {"product": 1, "amount": 6, "title": "tea"},
        ]


def test_a_renamed_column_is_stored_under_its_own_name_in_conditions(products: Relation) -> None:
    found = semistream.join(ORDERS, products, where="s.amount < r.amount", columns={"amount": "stock"}).read_all()
    assert found.to_pylist() == [{"product": 3, "amount": 5, "stock": 6}]


def test_one_name_is_one_column(products: Relation) -> None:
    assert joined(products, "name").column_names == ["product", "amount", "name"]
    assert joined(products, {}).column_names == joined(products, []).column_names == ["product", "amount"]
    assert products.scan("name").schema.names == ["name"]
    assert products.lookup([1], "name").to_pylist() == [{"name": "tea"}]
    assert semistream.explain(products, columns="name").choice.operator
    assert semistream.explain(products, columns={"name": "title"}).choice.operator


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"prize": "p"}, ColumnNotFound, "no column 'prize'.*Did you mean 'price'"),
        ("prize", ColumnNotFound, "no column 'prize'.*Did you mean 'price'"),
        ({"price": "amount"}, InvalidArgument, "maps 'price' to 'amount', a name that the stream has already"),
        ({"amount": "amount"}, InvalidArgument, "maps 'amount' to 'amount', a name that the stream has already"),
        ({"price": "p", "name": "p"}, InvalidArgument, "maps 'name' to 'p', a name that another column of R has"),
        ({"price": ""}, InvalidArgument, "maps 'price' to '', which is no name"),
        ({"price": 5}, InvalidArgument, "maps 'price' to 5, which is no name"),
        (5, InvalidArgument, "columns is a int; give the name of a column"),
        ([5], InvalidArgument, "columns is a list with a int; give the name of a column"),
    ],
)
def test_columns_that_cannot_be_are_refused(
    products: Relation, columns: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        joined(products, columns)
    with pytest.raises(error, match=message):
        MeshJoin(products, ORDERS.schema, on={"product": "id"}, columns=columns)


def test_rows_of_a_relation_keep_their_names(products: Relation) -> None:
    with pytest.raises(InvalidArgument, match="columns is a mapping, but rows of a relation keep the names"):
        products.scan({"name": "title"})  # type: ignore[arg-type]
