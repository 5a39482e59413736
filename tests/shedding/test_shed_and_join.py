"""From a batch in parts to results: a decision predicts the results of the join."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from semistream import MemoryBudget, Relation, join
from semistream.shedding import (
    MatchCounts,
    StreamPart,
    batch_seed,
    choose_strategy,
    estimate,
    read_decision,
    with_sample_columns,
)
from tests.oracle import batch_join

ON = {"product": "id"}


@pytest.fixture
def products(tmp_path: Path) -> Relation:
    """Suppliers of products, whose names are keys: some have thirty, most a few, and some products none."""
    rng = np.random.default_rng(1)
    numbers = rng.geometric(0.01, 3000)
    table = pa.table({"id": [f"product {n}" for n in numbers], "price": rng.gamma(2.0, 10.0, numbers.size)})
    return Relation.build(table, tmp_path / "products", key="id", page_bytes=4096)


@pytest.fixture
def orders() -> list[pa.RecordBatch]:
    rng = np.random.default_rng(2)
    names = [f"product {n}" if n else None for n in rng.integers(0, 500, 2000)]
    table = pa.table({"order": np.arange(2000), "product": names, "country": rng.choice(["be", "nl"], 2000).tolist()})
    return [table.slice(0, 700).to_batches()[0], table.slice(700).to_batches()[0]]


@pytest.mark.parametrize(("how", "least"), [("inner", 0), ("left", 1)])
def test_top_w_predicts_the_results_of_the_join(
    products: Relation, orders: list[pa.RecordBatch], how: str, least: int
) -> None:
    counts = MatchCounts.of(products, MemoryBudget("1MB"))
    strategy = choose_strategy("max_subset", unique_keys=counts.unique)
    assert strategy.name == "top_w"
    parts = [
        StreamPart.of(batch, list(ON), products.codec, counts, number=number, least_results=least)
        for number, batch in enumerate(orders)
    ]
    decision = strategy.decide([strategy.summarize(part) for part in parts], 300, batch_seed("orders", 1))
    stored = read_decision(decision.to_json())
    pieces = [stored.apply(part).split(batch) for part, batch in zip(parts, orders, strict=True)]
    kept, shed = (pa.Table.from_batches(batches) for batches in zip(*pieces, strict=True))
    assert kept.num_rows == 300
    joined = join(kept, products, on=ON, how=how, memory="1MB").read_all()
    assert joined.num_rows == decision.account.kept_results
    relation = products.scan().read_all()
    assert batch_join(shed, relation, ON, how, ["price"]).num_rows == decision.account.shed_results
    every = batch_join(pa.Table.from_batches(orders), relation, ON, how, ["price"])
    assert joined.num_rows + decision.account.shed_results == every.num_rows


@pytest.mark.parametrize("name", ["sample_w", "cluster_sampling"])
def test_weights_go_through_the_join_to_estimates(products: Relation, orders: list[pa.RecordBatch], name: str) -> None:
    """Of one sample with a fixed seed: the true values lie in intervals of five standard errors."""
    counts = MatchCounts.of(products, MemoryBudget("1MB"))
    strategy = choose_strategy(name=name)
    parts = [StreamPart.of(batch, list(ON), products.codec, counts, number=n) for n, batch in enumerate(orders)]
    decision = strategy.decide([strategy.summarize(part) for part in parts], 250, batch_seed("orders", 2))
    weighted = []
    for part, batch in zip(parts, orders, strict=True):
        kept = decision.apply(part)
        weighted.append(with_sample_columns(kept.split(batch)[0], part, kept, decision, batch_id=2))
    results = join(pa.Table.from_batches(weighted), products, on=ON, memory="1MB").read_all()
    every = batch_join(pa.Table.from_batches(orders), products.scan().read_all(), ON, "inner", ["price"])
    with duckdb.connect() as connection:
        connection.register("e", every)
        truth = connection.sql("SELECT country, sum(price), avg(price) FROM e GROUP BY ALL ORDER BY ALL").fetchall()
    for column, aggregate in ((1, "sum(price)"), (2, "avg(price)")):
        told = sorted(estimate(results, aggregate, by="country").to_pylist(), key=lambda line: str(line["country"]))
        assert [line["country"] for line in told] == [line[0] for line in truth] == ["be", "nl"]
        for line, true in zip(told, truth, strict=True):
            assert 0 < line["standard_error"] < 0.2 * true[column]
            assert abs(line["estimate"] - true[column]) < 5 * line["standard_error"]
