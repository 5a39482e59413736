"""explain() from Python: predictions by skew or by a sample, and refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream
from semistream import Explanation, Relation
from semistream.costs.machine import DEFAULT_MACHINE, Machine
from semistream.costs.profiles import load_profile, save_profile
from semistream.datasets import Zipf
from semistream.errors import (
    BudgetError,
    ColumnNotFound,
    InvalidArgument,
    KeyTypeError,
    NotARelation,
    ProfileRefused,
    SemistreamError,
)
from semistream.relation import DiskCosts
from semistream.tuning.candidates import OPERATORS

ROWS = 20_000
SLOW_DISK = replace(DEFAULT_MACHINE, name="slow", disk=DiskCosts(seek_s=0.05, transfer_s_per_byte=1e-7))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide all profiles except those that a test saves."""
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("explain") / "r"
    columns = {f"c{i}": np.arange(ROWS) for i in range(8)}
    return Relation.build(pa.table({"id": range(ROWS), **columns}), path, key="id", page_bytes=4096)


def stream(exponent: float, rows: int = 100_000) -> pa.RecordBatch:
    """Keys in a column ``product``, beside numbers that need all of their eight bytes."""
    keys = next(Zipf(exponent, ROWS, seed=3).batches(rows)).column("key")
    numbers = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, rows)
    return pa.RecordBatch.from_arrays([keys, pa.array(numbers)], names=["product", "number"])


@pytest.mark.slow
@pytest.mark.parametrize("machine", [DEFAULT_MACHINE, SLOW_DISK], ids=lambda machine: machine.name)
@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.4])
def test_a_sample_says_the_same_as_the_skew_that_it_was_drawn_with(
    relation: Relation, exponent: float, machine: Machine
) -> None:
    arguments: dict[str, Any] = {"on": {"product": "id"}, "memory": "20%", "machine": machine}
    by_skew = semistream.explain(relation, zipf=exponent, stream_schema=stream(0, 1).schema, **arguments)
    by_sample = semistream.explain(relation, sample=stream(exponent), **arguments)
    assert by_sample.choice.operator == by_skew.choice.operator
    assert by_sample.choice.hit_rate == pytest.approx(by_skew.choice.hit_rate, abs=0.1)
    assert by_sample.choice.rate == pytest.approx(by_skew.choice.rate, rel=0.6)


def test_a_table_is_a_sample_as_a_batch_is(relation: Relation) -> None:
    batch = stream(1.0, 20_000)
    pieces = pa.Table.from_batches([batch.slice(0, 7_000), batch.slice(7_000)])
    whole, cut = (
        semistream.explain(relation, sample=rows, on={"product": "id"}, memory="20%") for rows in (batch, pieces)
    )
    assert whole.as_dict() == cut.as_dict()


def test_tuples_without_a_key_ask_for_none(relation: Relation) -> None:
    batch = stream(1.0, 20_000)
    no_keys = pa.RecordBatch.from_arrays(
        [pa.nulls(5_000, pa.int64()), pa.array(range(5_000))], names=batch.schema.names
    )
    with_nulls = pa.Table.from_batches([batch, no_keys])
    arguments: dict[str, Any] = {"on": {"product": "id"}, "memory": "20%", "machine": SLOW_DISK}
    with_, without = (semistream.explain(relation, sample=rows, **arguments) for rows in (with_nulls, batch))
    assert with_.choice.hit_rate == pytest.approx(without.choice.hit_rate)


def test_without_a_sample_the_stream_has_the_join_columns(relation: Relation) -> None:
    by_key = semistream.explain(relation, memory="20%", zipf=1.0)
    for on in ("id", ["id"], {"product": "id"}, {"value": "id"}):
        assert semistream.explain(relation, on=on, memory="20%", zipf=1.0).as_dict() == by_key.as_dict()
    wide = pa.schema([("id", pa.int64()), *((f"s{i}", pa.int64()) for i in range(20))])
    assert semistream.explain(relation, stream_schema=wide, memory="20%", zipf=1.0).choice.rate < by_key.choice.rate


def test_composite_and_string_keys(tmp_path: Path) -> None:
    rows = {"a": np.arange(2000) % 7, "b": [f"key {i}" for i in range(2000)], "n": range(2000)}
    built = Relation.build(pa.table(rows), tmp_path / "r", key=["a", "b"], page_bytes=4096)
    explanation = semistream.explain(built, on={"x": "a", "y": "b"}, zipf=0.5, memory="300kB")
    assert sum(explanation.parts.values()) == 300_000


def test_a_path_is_as_good_as_an_open_relation(relation: Relation) -> None:
    opened = semistream.explain(relation, memory="20%")
    assert semistream.explain(relation.path, memory="20%").as_dict() == opened.as_dict()
    assert semistream.explain(str(relation.path), memory="20%").as_dict() == opened.as_dict()


def test_all_requested_fields_are_there(relation: Relation) -> None:
    explanation = semistream.explain(relation, memory="15%", rate=1000.0, zipf=1.0)
    assert isinstance(explanation, Explanation)
    assert explanation.memory_bytes == int(0.15 * relation.nbytes)
    assert sum(explanation.parts.values()) == explanation.memory_bytes
    assert explanation.choice.worst_latency_s >= explanation.choice.median_latency_s
    assert len(explanation.alternatives) + len(explanation.refused) == len(OPERATORS) - 1
    assert explanation.curve[-1].memory_bytes == relation.nbytes
    assert "tuples/s: sustained" in (explanation.target or "")
    json.dumps(explanation.as_dict(), allow_nan=False)
    for word in ("rate", "latency", "hit rate", "memory", "alternatives", "what would change the choice"):
        assert word in str(explanation)


def test_fewer_columns_are_joined_faster(tmp_path: Path) -> None:
    columns = {f"c{i}": np.arange(3000) for i in range(50)}
    built = Relation.build(pa.table({"id": range(3000), **columns}), tmp_path / "wide", key="id", page_bytes=8192)
    memory = built.nbytes // 2
    all_of_them = semistream.explain(built, memory=memory, machine=SLOW_DISK)
    three = semistream.explain(built, memory=memory, machine=SLOW_DISK, columns=["c1", "c2", "c3"])
    assert three.choice.rate > 2 * all_of_them.choice.rate


def test_micro_batches_are_slower_than_a_stream_that_goes_on(relation: Relation) -> None:
    drained = semistream.explain(relation, memory="20%", batch_rows=2000, machine=SLOW_DISK)
    endless = semistream.explain(relation, memory="20%", machine=SLOW_DISK)
    assert drained.choice.rate < endless.choice.rate / 2


def test_costs_are_those_of_the_profile_if_there_is_one(relation: Relation) -> None:
    guessed = semistream.explain(relation, memory="20%")
    assert not guessed.calibrated
    assert guessed.machine == DEFAULT_MACHINE.name
    save_profile(SLOW_DISK, relation.path)
    measured = semistream.explain(relation, memory="20%")
    assert measured.calibrated
    assert measured.machine == "slow"
    assert measured.choice.rate < guessed.choice.rate / 2


def test_a_profile_that_is_refused_is_not_passed_over(relation: Relation, cache: Path) -> None:
    save_profile(SLOW_DISK, relation.path)
    (file,) = cache.glob("*.json")
    file.write_text("{}")
    with pytest.raises(ProfileRefused):
        load_profile(relation.path)
    with pytest.raises(ProfileRefused, match="semistream calibrate"):
        semistream.explain(relation)
    assert semistream.explain(relation, memory="20%", machine=SLOW_DISK).machine == "slow"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rate": 0.0}, InvalidArgument, "rate is 0"),
        ({"rate": -3.0}, InvalidArgument, "rate is -3"),
        ({"rate": math.nan}, InvalidArgument, "rate is nan"),
        ({"rate": math.inf}, InvalidArgument, "rate is inf"),
        ({"zipf": -0.5}, InvalidArgument, "zipf is -0.5; give a number from 0"),
        ({"zipf": math.nan}, InvalidArgument, "zipf is nan"),
        ({"batch_rows": 0.0}, InvalidArgument, "batch_rows is 0"),
        ({"batch_rows": math.nan}, InvalidArgument, "batch_rows is nan"),
        ({"memory": 0}, BudgetError, "must be more than zero"),
        ({"memory": -1}, BudgetError, "must be more than zero"),
        ({"memory": "much"}, BudgetError, "memory is 'much'"),
        ({"memory": "1kB"}, BudgetError, "1,000 bytes is too small for any operator"),
        ({"on": "price"}, ColumnNotFound, "no column 'price'"),
        ({"on": {"product": "idd"}}, ColumnNotFound, "Did you mean 'id'"),
        ({"columns": ["c99"]}, ColumnNotFound, "no column 'c99'"),
        ({"how": "outer"}, InvalidArgument, "how is 'outer'"),
        ({"on": "c1"}, InvalidArgument, r"equality with R's whole key \(id\).*'mesh'"),
        ({"where": "s.id <= r.id"}, InvalidArgument, r"condition is s.id <= r.id.*'sweep'"),
        ({"zipf": 1.0, "sample": stream(1.0, 10)}, InvalidArgument, "zipf and sample both"),
        ({"sample": stream(1.0, 10)}, ColumnNotFound, "no column 'id'"),
        ({"sample": stream(1.0, 10), "on": {"produkt": "id"}}, ColumnNotFound, "Did you mean 'product'"),
        ({"sample": stream(1.0, 10).slice(0, 0), "on": {"product": "id"}}, InvalidArgument, "the sample has no rows"),
        ({"sample": pa.table({"id": pa.nulls(9, pa.int64())})}, InvalidArgument, "only nulls in 'id', a key"),
        ({"sample": pa.table({"id": ["a", "b"]})}, KeyTypeError, "id"),
    ],
)
def test_nonsense_is_refused(
    relation: Relation, arguments: dict[str, Any], error: type[SemistreamError], message: str
) -> None:
    with pytest.raises(error, match=message):
        semistream.explain(relation, **arguments)


def test_plain_parquet_and_an_empty_relation_are_refused(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2]})
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(NotARelation, match=r"plain Parquet: .*Relation\.build\("):
        semistream.explain(tmp_path / "r.parquet", on="id")
    empty = Relation.build(table.slice(0, 0), tmp_path / "empty", key="id")
    with pytest.raises(InvalidArgument, match="has no rows: there is nothing to plan for"):
        semistream.explain(empty)
