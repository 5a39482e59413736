"""The curve of hit rates against memory: the law of the keys, a sample and a running engine agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import EngineJoin, Relation
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.joins.condition.spec import JoinSpec
from semistream.tuning.cache_curve import CACHE_SHARE, cache_curve
from semistream.tuning.candidates import candidates

ROWS = 40_000
MEMORIES = (400_000, 600_000, 900_000, 1_300_000, 2_000_000)
SCHEMA = pa.schema([("key", pa.int64()), ("amount", pa.int64())])


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("curve") / "r"
    columns = {f"c{i}": np.arange(ROWS) for i in range(10)}
    return Relation.build(pa.table({"key": range(ROWS), **columns}), path, key="key", page_bytes=4096)


@pytest.mark.slow
def test_five_sizes_are_within_three_points_of_running_them(relation: Relation) -> None:
    exponent, spec = 1.1, JoinSpec.of(relation, SCHEMA, on="key")
    (engine,) = candidates(relation, spec, kinds=[EngineJoin])
    sample = Zipf(exponent, ROWS, seed=1).keys(400_000)
    points = list(cache_curve(engine, MEMORIES, KeyFrequencies.zipf(exponent, ROWS), sample))
    assert [point.memory_bytes for point in points] == list(MEMORIES)
    for point in points:
        run = hit_rate(relation, Zipf(exponent, ROWS, seed=2), point.memory_bytes)
        assert point.modelled == pytest.approx(run, abs=0.03)
        assert point.sampled == pytest.approx(run, abs=0.03)


def hit_rate(relation: Relation, stream: Zipf, memory: int) -> float:
    """Return the hit rate of the engine's cache after a while."""
    with EngineJoin(relation, SCHEMA, on="key", memory=memory, cache_share=CACHE_SHARE, disk="buffered") as join:
        hits = 0
        for batch in range(60):
            if batch == 30:
                hits = join.stats.cache_hits
            keys = stream.keys(20_000)
            for _ in join.push(pa.record_batch([keys, keys % 100], schema=SCHEMA)):
                pass
        return (join.stats.cache_hits - hits) / 600_000


def test_a_memory_without_a_cache_has_no_point(relation: Relation) -> None:
    (engine,) = candidates(relation, JoinSpec.of(relation, SCHEMA, on="key"), kinds=[EngineJoin])
    assert list(cache_curve(engine, [1000], KeyFrequencies.uniform(ROWS), None)) == []
    (point,) = cache_curve(engine, [1_000_000], KeyFrequencies.uniform(ROWS), None)
    assert point.sampled is None
