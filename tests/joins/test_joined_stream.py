"""The public function: its arguments, its refusals, and its results."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import MeshJoin, Relation
from semistream.datasets import Zipf
from semistream.errors import (
    BudgetError,
    ColumnNotFound,
    InvalidArgument,
    KeyTypeError,
    NotARelation,
    ResultsConsumed,
)
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.parts.options import anything
from semistream.joins.sweep.operator import SweepJoin
from semistream.joins.sweep.stream_buffer import StreamBuffer
from semistream.keys import KeyCodec
from semistream.tuning.candidates import OPERATORS
from semistream.tuning.tuner import Tuner
from tests.oracle import batch_join, multiset

ORDERS = pa.table({"product": [3, 1, 9, 3, None], "amount": [5, 6, 7, 8, 9]})
PRODUCTS = pa.table({"id": [1, 2, 3], "name": ["tea", "cola", "milk"], "amount": [10, 20, 30]})


@pytest.fixture
def products(tmp_path: Path) -> Relation:
    return Relation.build(PRODUCTS, tmp_path / "products", key="id")


def joined(relation: Relation | str, **options: object) -> pa.Table:
    return semistream.join(ORDERS, relation, on={"product": "id"}, memory="1MB", **options).read_all()


def test_columns_of_s_then_those_of_r_without_its_key(products: Relation) -> None:
    result = joined(products)
    assert result.column_names == ["product", "amount", "name", "amount_right"]
    assert sorted(result.to_pylist(), key=str) == [
        {"product": 1, "amount": 6, "name": "tea", "amount_right": 10},
        {"product": 3, "amount": 5, "name": "milk", "amount_right": 30},
        {"product": 3, "amount": 8, "name": "milk", "amount_right": 30},
    ]


def test_columns_and_suffix_are_the_users_choice(products: Relation) -> None:
    assert joined(products, columns=["amount", "id"], suffix="_r").column_names == [
        "product",
        "amount",
        "amount_r",
        "id",
    ]
    assert joined(products, columns=[]).column_names == ["product", "amount"]


def test_a_left_joins_columns_can_be_null(products: Relation) -> None:
    not_null = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])
    relation = Relation.build(PRODUCTS.select(["id", "name"]).cast(not_null), products.path, key="id", overwrite=True)
    result = semistream.join(ORDERS, relation, on={"product": "id"}, how="left", memory="1MB")
    assert result.schema.field("name").nullable
    assert result.read_all().column("name").null_count == 2


@pytest.mark.parametrize("operator", ["auto", "mesh", "hybrid", "index", "nested_loop", MeshJoin])
def test_operators_by_name_and_by_class(products: Relation, operator: object) -> None:
    assert joined(products, operator=operator).num_rows == 3


def test_a_stream_can_be_anything_arrow_or_a_file(products: Relation, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    connection = duckdb.connect()
    sources = [
        ORDERS,
        ORDERS.to_batches(max_chunksize=2),
        iter(ORDERS.to_batches()),
        ORDERS.to_reader(),
        ORDERS.drop_null().to_pandas(),
        connection.sql("SELECT * FROM ORDERS"),
        str(tmp_path / "orders.parquet"),
    ]
    for source in sources:
        result = semistream.join(source, str(products.path), on={"product": "id"}, memory="1MB").read_all()
        assert sorted(result.column("name").to_pylist()) == ["milk", "milk", "tea"]
    connection.close()


def test_the_result_is_an_arrow_stream(products: Relation) -> None:
    result = semistream.join(ORDERS, products, on={"product": "id"}, memory="1MB")
    assert pa.table(result).num_rows == 3
    assert result.stats.matched == 3
    assert result.stats.unmatched == 2


def test_explain_names_operator_relation_and_budget(products: Relation) -> None:
    text = semistream.join(ORDERS, products, on={"product": "id"}, memory="1MB").explain()
    for part in ("engine", "version 1", "3 rows", "budget 1 MB", "page buffers"):
        assert part in text


def test_dropping_the_result_half_way_ends_the_thread(products: Relation) -> None:
    threads = set(threading.enumerate())
    stream = (pa.record_batch({"id": np.arange(100)}) for _ in range(1000))
    result = semistream.join(stream, products, on="id", memory="200kB")
    next(result)
    result.close()
    assert set(threading.enumerate()) == threads


def test_every_hash_match_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collide(self, columns):
        nulls = np.logical_or.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in columns])
        return np.zeros(len(columns[0]), np.int64), ~nulls

    monkeypatch.setattr(KeyCodec, "encode", collide)
    relation = pa.table({"k": ["a", "b", "b", "c"] * 30, "n": range(120)})
    stream = pa.table({"s": ["b", "x", "a", None, "c"] * 9, "at": range(45)})
    built = Relation.build(relation, tmp_path / "r", key="k", page_bytes=512)
    for how in ("inner", "left", "semi", "anti"):
        expected = multiset(batch_join(stream, relation, {"s": "k"}, how, ["n"]))
        for operator in ("mesh", "hybrid", "index", "nested_loop"):
            result = semistream.join(stream, built, on={"s": "k"}, how=how, memory="1MB", operator=operator)
            assert multiset(result.read_all()) == expected
    assert expected  # the anti join has rows: "x" and null


def test_keys_of_another_width_are_widened(products: Relation) -> None:
    narrow = ORDERS.set_column(0, "product", ORDERS["product"].cast(pa.int8()))
    assert semistream.join(narrow, products, on={"product": "id"}, memory="1MB").read_all().num_rows == 3


def test_what_cannot_work_is_refused_by_name(products: Relation, tmp_path: Path) -> None:
    with pytest.raises(ColumnNotFound, match=r"stream has no column 'prodct'.*Did you mean 'product'"):
        semistream.join(ORDERS, products, on={"prodct": "id"})
    with pytest.raises(ColumnNotFound, match="no column 'ident'"):
        semistream.join(ORDERS, products, on={"product": "ident"})
    with pytest.raises(InvalidArgument, match=r"'nested_loop' .*s.product = r.amount.*clustered by \(id\).*'mesh'"):
        semistream.join(ORDERS, products, on={"product": "amount"}, operator="nested_loop")
    with pytest.raises(KeyTypeError, match=r"string.*int64"):
        semistream.join(pa.table({"product": ["1"]}), products, on={"product": "id"})
    with pytest.raises(InvalidArgument, match="how is 'outer'; give one of inner, left, semi, anti"):
        joined(products, how="outer")
    with pytest.raises(InvalidArgument, match="operator is 'hash'; give 'auto', 'engine', 'mesh', 'adaptive_mesh'"):
        joined(products, operator="hash")
    with pytest.raises(InvalidArgument, match="'engine' has no option 'speed'; it has cache_share, machine, on, where"):
        joined(products, speed=11)
    with pytest.raises(ColumnNotFound, match="'colour'"):
        joined(products, columns=["colour"])
    with pytest.raises(InvalidArgument, match="columns is not allowed with how='semi'"):
        joined(products, how="semi", columns=["name"])
    with pytest.raises(InvalidArgument, match="the result would have two columns 'amount'"):
        joined(products, suffix="")
    with pytest.raises(BudgetError, match=r"1000 bytes is too small.*at least \d+ bytes"):
        semistream.join(ORDERS, products, on={"product": "id"}, memory="1kB")
    with pytest.raises(NotARelation, match="does not exist"):
        semistream.join(ORDERS, tmp_path / "nowhere", on="id")


def test_a_batch_with_other_columns_is_refused(products: Relation) -> None:
    with MeshJoin(products, ORDERS.schema, on={"product": "id"}, memory="1MB") as join:
        with pytest.raises(InvalidArgument, match=r"columns \(x: int64\).*declared with \(product: int64"):
            join.push(pa.record_batch({"x": [1]}))
        assert list(join.flush()) == []  # the refused call has not begun anything


def test_a_stream_row_wider_than_the_budget_is_refused(products: Relation) -> None:
    wide = pa.table({"id": [1], "text": ["x" * 2_000_000]})
    with pytest.raises(
        BudgetError, match=r"a stream row of 2\d+ bytes does not fit in a budget of 1000000 bytes"
    ) as refused:
        semistream.join(wide, products, on="id", memory="1MB").read_all()
    least = refused.value.least_bytes
    assert semistream.join(wide, products, on="id", memory=least).read_all().num_rows == 1


def test_an_option_is_offered_if_it_is_taken_and_only_then(products: Relation) -> None:
    """An option that an operator fixes itself is refused; one that a user's class passes on is not."""

    class Handing(MeshJoin):
        options = {"loud": anything, **MeshJoin.options}  # noqa: RUF012

        def __init__(self, *arguments: Any, loud: bool = False, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.loud = loud

    for name in ("wraps", "options"):
        with pytest.raises(InvalidArgument, match=f"'engine' has no option '{name}'"):
            joined(products, **{name: MeshJoin})
    assert joined(products, operator="cmesh", options={"pages_per_step": 1}, cache_share=0.1).num_rows == 3
    assert joined(products, operator=Handing, loud=True, rows_per_step=2, ordered=True).num_rows == 3
    with pytest.raises(InvalidArgument, match="it has loud, rows_per_step, pages_per_step, on"):
        joined(products, operator=Handing, quiet=True)


def test_a_join_is_resolved_chosen_and_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the call to the last result of a short stream: nothing is done twice, and no buffer is only a guess."""
    rows = 20_000
    columns = {f"c{i}": np.arange(rows) for i in range(6)}
    relation = Relation.build(pa.table({"id": np.arange(rows), **columns}), tmp_path / "r", key="id")
    called: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        method = getattr(owner, name)
        function = getattr(method, "__func__", method)

        def counted(*arguments: Any, **options: Any) -> Any:
            called[f"{owner.__name__}.{name}"] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, classmethod(counted) if hasattr(method, "__func__") else counted)

    for owner, name in (
        (JoinSpec, "of"),
        (Tuner, "chosen"),
        (EngineJoin, "__init__"),
        (SweepJoin, "arrange"),
        (StreamBuffer, "__init__"),
        (EngineJoin, "_best_share"),
    ):
        count(owner, name)
    keys = Zipf(1.0, rows, seed=4).keys(5000)
    result = semistream.join(pa.table({"id": keys}), relation, on="id", memory="400kB").read_all()
    assert result.num_rows == 5000
    assert called == {
        "JoinSpec.of": 1,
        "Tuner.chosen": 1,
        "EngineJoin.__init__": 1,
        "SweepJoin.arrange": 1,
        "StreamBuffer.__init__": 1,
    }


def test_without_memory_a_join_gets_a_tenth_of_r_but_at_least_a_megabyte(products: Relation, tmp_path: Path) -> None:
    assert products.nbytes < 2_000
    small = semistream.join(ORDERS, products, on={"product": "id"})
    assert small.read_all().num_rows == 3
    assert small.stats.budget_bytes == 1_000_000
    numbers = pa.table({"id": np.arange(2_000_000)})
    large = Relation.build(numbers, tmp_path / "large", key="id")
    assert large.nbytes > 10_000_000
    joined = semistream.join(ORDERS, large, on={"product": "id"})
    joined.close()
    assert joined.stats.budget_bytes == large.nbytes // 10


@pytest.mark.parametrize("operator", ["auto", *OPERATORS])
def test_without_memory_every_operator_gets_what_it_needs(operator: str, tmp_path: Path) -> None:
    wide = pa.table({"id": range(40), "text": ["x" * 300_000] * 40})
    relation = Relation.build(wide, tmp_path / "wide", key="id", page_bytes=700_000)
    orders = pa.table({"product": [1, 39, 40]})
    arguments: dict[str, Any] = {"on": {"product": "id"}, "how": "left", "operator": operator}
    with pytest.raises(BudgetError, match="it needs at least") as refused:
        semistream.join(orders, relation, memory="10%", **arguments)
    joined = semistream.join(orders, relation, **arguments)
    assert joined.read_all().num_rows == 3
    assert refused.value.least_bytes is not None
    assert 1_000_000 < joined.stats.budget_bytes == refused.value.least_bytes
    ordered = semistream.join(orders, relation, ordered=True, **arguments)
    assert ordered.read_all().column("product").to_pylist() == [1, 39, 40]
    assert ordered.stats.budget_bytes > joined.stats.budget_bytes


def test_a_share_that_is_too_small_is_refused_with_the_least(products: Relation) -> None:
    with pytest.raises(
        BudgetError, match=rf"a budget of {products.nbytes // 10} bytes is too small.*at least \d+ bytes"
    ):
        semistream.join(ORDERS, products, on={"product": "id"}, memory="10%")


def test_results_are_returned_once_and_asking_again_is_an_error(products: Relation) -> None:
    stream = semistream.join(ORDERS, products, on={"product": "id"})
    assert stream.read_all().num_rows == 3
    for again in (stream.read_all, lambda: list(stream), lambda: pa.table(stream), stream.__arrow_c_stream__):
        with pytest.raises(ResultsConsumed, match=r"all results have been returned, after 3 rows.*Call join\(\) again"):
            again()
    assert next(stream, None) is None  # an iterator stays at its end


def test_a_closed_or_failed_join_returns_no_empty_results(products: Relation) -> None:
    closed = semistream.join(ORDERS, products, on={"product": "id"})
    closed.close()
    with pytest.raises(ResultsConsumed, match="the join was closed, after 0 rows"):
        closed.read_all()

    def breaking() -> Any:
        yield from ORDERS.to_batches()
        raise OSError("the source is gone")

    failed = semistream.join(breaking(), products, on={"product": "id"})
    with pytest.raises(OSError, match="the source is gone"):
        failed.read_all()
    with pytest.raises(ResultsConsumed, match=r"the join failed \(OSError: the source is gone\)"):
        failed.read_all()


def test_the_rest_can_be_read_after_a_part(products: Relation) -> None:
    batches = [ORDERS.slice(i, 1).to_batches()[0] for i in range(5)]
    stream = semistream.join(iter(batches), products, on={"product": "id"}, how="left", operator="mesh")
    seen = next(iter(stream)).num_rows
    assert seen + stream.read_all().num_rows == 5


SPARKS = {
    "left": ["leftouter", "left_outer", "LEFT"],
    "semi": ["leftsemi", "left_semi", "semi"],
    "anti": ["leftanti", "left_anti", "anti"],
    "inner": ["Inner"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SPARKS.items() for name in names])
def test_kinds_of_join_have_sparks_names_too(products: Relation, kind: str, name: str) -> None:
    assert joined(products, how=name).equals(joined(products, how=kind))
    with MeshJoin(products, ORDERS.schema, on={"product": "id"}, how=name) as join:
        assert join.spec.how == kind
    assert str(semistream.explain(products, how=name)) == str(semistream.explain(products, how=kind))


@pytest.mark.parametrize("how", ["right", "outer", "full_outer", "cross", "", None, 5])
def test_other_kinds_of_join_are_refused_with_those_there_are(products: Relation, how: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"how is {how!r}; give one of inner, left, semi, anti, or Spark's name"):
        joined(products, how=how)
