"""StreamWatch: its estimates from the first batch on, and its detection of a change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import Relation
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.joins.condition.condition import Condition
from semistream.joins.engine.stream_watch import StreamWatch

KEYS, BATCH = 50_000, 20_000
SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


@pytest.fixture(scope="module")
def condition(tmp_path_factory: pytest.TempPathFactory) -> Condition:
    path: Path = tmp_path_factory.mktemp("watch") / "r"
    return Condition.of(Relation.build(pa.table({"key": range(100)}), path, key="key"), SCHEMA, on="key", where=None)


def batch(keys: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys), pa.array(["x"] * keys.size)], schema=SCHEMA)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5])
def test_the_first_batch_is_enough_to_begin_with_and_more_are_better(condition: Condition, exponent: float) -> None:
    watch, stream = StreamWatch(condition, KEYS, 1 << 17), Zipf(exponent, KEYS, seed=2)
    truth, first = KeyFrequencies.zipf(exponent, KEYS), batch(stream.keys(BATCH))
    assert not watch.see(first)
    found = watch.frequencies(first)
    assert found is not None
    assert found.share(100) == pytest.approx(truth.share(100), abs=0.06)
    for _ in range(60):
        assert not watch.see(batch(stream.keys(BATCH)))
    found = watch.frequencies(first)
    assert found is not None
    assert found.share(100) == pytest.approx(truth.share(100), abs=0.03)


def test_batches_in_key_order_are_no_other(condition: Condition) -> None:
    watch, stream = StreamWatch(condition, KEYS, 1 << 17), Zipf(1.0, KEYS, seed=2)
    for _ in range(40):
        last = batch(np.sort(stream.keys(BATCH)))
        watch.see(last)
    found = watch.frequencies(last)
    assert found is not None
    assert found.share(100) == pytest.approx(KeyFrequencies.zipf(1.0, KEYS).share(100), abs=0.03)


@pytest.mark.parametrize(
    ("sketch_bytes", "batches", "before", "after", "within"),
    [
        pytest.param(1 << 17, 60, 0.0, 1.5, 0.06, id="sketch, 0.0 to 1.5"),
        pytest.param(1 << 17, 60, 1.5, 0.0, 0.06, id="sketch, 1.5 to 0.0"),
        pytest.param(1 << 17, 60, 0.5, 1.2, 0.06, id="sketch, 0.5 to 1.2"),
        pytest.param(0, 20, 0.0, 1.5, 0.1, id="batch at hand, 0.0 to 1.5"),
        pytest.param(0, 20, 1.5, 0.0, 0.1, id="batch at hand, 1.5 to 0.0"),
    ],
)
def test_a_jump_is_noticed_within_a_few_batches_and_then_forgotten(
    condition: Condition, sketch_bytes: int, batches: int, before: float, after: float, within: float
) -> None:
    watch, stream = StreamWatch(condition, KEYS, sketch_bytes), Zipf(before, KEYS, seed=2)
    for _ in range(batches):
        assert not watch.see(batch(stream.keys(BATCH)))
        watch.frequencies(batch(stream.keys(BATCH)))
    jumped = Zipf(after, KEYS, seed=3)
    seen = [watch.see(batch(jumped.keys(BATCH))) for _ in range(5)]
    assert seen.count(True) == 1
    found = watch.frequencies(batch(jumped.keys(BATCH)))
    assert found is not None
    assert found.share(100) == pytest.approx(KeyFrequencies.zipf(after, KEYS).share(100), abs=within)


def test_tuples_without_a_key_and_small_batches_say_nothing(condition: Condition) -> None:
    watch = StreamWatch(condition, KEYS, 1 << 17)
    nulls = pa.record_batch([pa.nulls(1000, pa.int64()), pa.nulls(1000, pa.string())], schema=SCHEMA)
    assert not watch.see(nulls)
    assert watch.frequencies(nulls) is None
    assert watch.frequencies(batch(np.arange(10))) is None


def test_it_has_a_small_part_of_a_memory_or_none() -> None:
    assert StreamWatch.affordable_bytes(2_000_000) == 0
    assert 0 < StreamWatch.affordable_bytes(3_000_000) <= 3_000_000 // 64
    assert StreamWatch.affordable_bytes(10**12) <= 1 << 20
