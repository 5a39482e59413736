"""Missing results by the statistics, and the count of memory when its unit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.datasets import Zipf
from semistream.windows import (
    Expected,
    GivenProbabilities,
    LearntProbabilities,
    Life,
    Prob,
    SlowCpu,
    Tuples,
    WindowJoin,
)

ROWS = 20_000
SCHEMAS = (pa.schema([("k", pa.int64()), ("t", pa.int64())]), pa.schema([("k", pa.int64()), ("t", pa.int64())]))


def two_streams(instants_apart: int) -> list[pa.RecordBatch]:
    keys = [Zipf(0.8, 200, seed=3).seek(first).keys(ROWS) for first in (0, 10**6)]
    return [pa.record_batch([pa.array(k), pa.array(np.arange(ROWS) * instants_apart)], schema=SCHEMAS[0]) for k in keys]


def results(join: WindowJoin, streams: list[pa.RecordBatch]) -> int:
    return sum(b.num_rows for b in [*join.push_left(streams[0]), *join.push_right(streams[1]), *join.finish()])


@pytest.mark.parametrize("apart", [1, 7])
@pytest.mark.parametrize("policy", [Prob, Life, Expected])
@pytest.mark.parametrize("source", ["given", "learnt"])
def test_the_estimate_of_missing_results_is_near(apart: int, policy: Any, source: str) -> None:
    """Also where instants are many units of time apart."""
    streams = two_streams(apart)
    tables = [pa.Table.from_batches([stream]) for stream in streams]
    probabilities: Any = GivenProbabilities.of_streams(*tables, on="k")
    if source == "learnt":
        probabilities = LearntProbabilities(half_life=4000, width=1024)
    options: Any = {"on": "k", "time": "t", "window": 500 * apart}
    join = WindowJoin(*SCHEMAS, memory=400, policy=policy(probabilities), **options)
    missing = results(WindowJoin(*SCHEMAS, **options), streams) - results(join, streams)
    assert missing > 50_000
    assert join.stats.missing_estimate == pytest.approx(missing, rel=0.1)


def test_the_estimate_in_windows_of_tuples() -> None:
    streams = two_streams(3)
    given = GivenProbabilities.of_streams(*(pa.Table.from_batches([stream]) for stream in streams), on="k")
    options: Any = {"on": "k", "time": "t", "window": Tuples(500)}
    join = WindowJoin(*SCHEMAS, memory=400, policy=Prob(given), **options)
    missing = results(WindowJoin(*SCHEMAS, **options), streams) - results(join, streams)
    assert join.stats.missing_estimate == pytest.approx(missing, rel=0.1)
    unknown = WindowJoin(*SCHEMAS, memory=400, policy="random", **options)
    assert unknown.stats.missing_estimate is None
    assert unknown.stats.as_dict()["missing_estimate"] is None


def test_memory_may_change_between_tuples_and_bytes() -> None:
    streams = two_streams(1)
    join = WindowJoin(*SCHEMAS, on="k", time="t", window=5000, policy="random")
    list(join.push_left(streams[0].slice(0, 4000)))
    list(join.push_right(streams[1].slice(0, 4000)))
    assert join.stats.left.in_memory == 3999  # the last instant is not complete
    tuple_bytes = 360 + 3 * (9 + 9)
    join.set_memory(f"{200 * tuple_bytes + 200}B")
    assert (join.stats.left.in_memory, join.stats.right.in_memory) == (100, 100)
    join.set_memory(300)
    list(join.push_left(streams[0].slice(4000)))
    list(join.push_right(streams[1].slice(4000)))
    list(join.finish())
    assert (join.stats.left.in_memory, join.stats.right.in_memory) == (150, 150)


def test_memory_changes_behind_a_queue() -> None:
    streams = two_streams(1)
    join = WindowJoin(*SCHEMAS, on="k", time="t", window=500, memory=300, cpu=SlowCpu(1, 50))
    list(join.push_left(streams[0]))
    list(join.push_right(streams[1]))
    before = join.stats
    join.set_memory(100)
    after = join.stats
    assert before.left.queued + before.right.queued == after.left.queued + after.right.queued == 50
    assert after.left.in_memory + after.right.in_memory < before.left.in_memory + before.right.in_memory
    list(join.finish())
    for counts in (join.stats.left, join.stats.right):
        assert counts.rows_in == ROWS == counts.in_memory + counts.expired + counts.evicted + counts.dropped
