"""The simulated front stage, against LFU and against the front stage that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from experiments.front_policy import FrontPolicy

from semistream import Relation
from semistream.costs.miss_ratio import MissRatioCurve
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.kernels.array_types import Int64s

ROWS = 40_000
SCHEMA = pa.schema([("key", pa.int64()), ("seq", pa.int64())])


@pytest.mark.parametrize("exponent", [0.5, 1.5])
def test_a_sample_of_keys_gives_the_result_of_all(exponent: float) -> None:
    codes, policy = Zipf(exponent, 200_000, seed=2).keys(500_000), FrontPolicy(30_000, 15_000)
    exact, some = (policy.curve(codes, most_tuples=most) for most in (codes.size, codes.size // 16))
    sizes = np.geomspace(256 * 16, 200_000, 12)
    assert some.hit_rate(sizes) == pytest.approx(exact.hit_rate(sizes), abs=0.02)


def test_a_front_stage_is_nearly_lfu_until_hot_keys_change() -> None:
    steady, sizes = Zipf(1.0, ROWS, seed=2).keys(400_000), [300, 1000, 3000]
    front = FrontPolicy(20_000, 10_000).curve(steady).hit_rate(sizes)
    lfu = MissRatioCurve.of_sample(steady, policy="lfu").hit_rate(sizes)
    assert np.all(front < lfu)
    assert front == pytest.approx(lfu, abs=0.03)
    by_pass = [
        FrontPolicy(rows, rows / 2).curve(shifting(400_000)).hit_rate(sizes) for rows in (1_000, 10_000, 100_000)
    ]
    assert np.all(np.diff(by_pass, axis=0) < -0.01)  # the longer a pass takes, the later it learns of them


@dataclass(frozen=True)
class Measured:
    """A front stage in the second half of a stream: rows held, its hit rate, and the join behind it."""

    rows: float
    hit_rate: float
    behind: FrontPolicy


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("miss ratio") / "r"
    columns = {f"c{i}": np.arange(ROWS) for i in range(14)}
    return Relation.build(pa.table({"key": range(ROWS), **columns}), path, key="key", page_bytes=4096)


def run(relation: Relation, codes: Int64s, wraps: type[SemiStreamJoin], cache_share: float) -> Measured:
    memory, half = int(0.2 * relation.nbytes), codes.size // 2
    with FrontStage(relation, SCHEMA, on="key", memory=memory, cache_share=cache_share, wraps=wraps) as join:
        hits, held, waiting = 0, [], []
        for begin in range(0, codes.size, 5000):
            keys = codes[begin : begin + 5000]
            for _ in join.push(pa.record_batch([keys, np.zeros(keys.size, np.int64)], schema=SCHEMA)):
                pass
            if begin + 5000 <= half:
                hits = join.stats.cache_hits
            else:
                held.append(join.cached_rows)
                waiting.append(join.wrapped.stats.rows_waiting)
        wait = float(np.mean(waiting))
        behind = FrontPolicy(pass_rows=2 * wait, waiting_rows=wait)
        if isinstance(join.wrapped, MeshJoin):
            passes = join.wrapped.pages_passed / join.wrapped.pages_of_scan
            pass_rows = (codes.size - join.stats.cache_hits) / passes
            behind = FrontPolicy(pass_rows=pass_rows, waiting_rows=pass_rows)
        return Measured(float(np.mean(held)), (join.stats.cache_hits - hits) / (codes.size - half), behind)


def shifting(tuples: int) -> Int64s:
    """Hot keys that change after a while."""
    return (Zipf(1.0, ROWS, seed=3).keys(tuples) + np.arange(tuples) // 100_000 * 7919) % ROWS


def drifting(tuples: int) -> Int64s:
    """Every thousand tuples, twenty keys change places with others, hot ones as likely as cold ones."""
    random = np.random.default_rng(5)
    ranks, keys = Zipf(1.0, ROWS, seed=3, permute=False).keys(tuples), random.permutation(ROWS)
    out = np.empty_like(ranks)
    for begin in range(0, tuples, 1000):
        one, other = (ROWS ** random.random(20)).astype(np.int64) - 1, random.integers(0, ROWS, 20)
        keys[one], keys[other] = keys[other], keys[one].copy()
        out[begin : begin + 1000] = keys[ranks[begin : begin + 1000]]
    return out


SHARES: dict[type[SemiStreamJoin], tuple[float, ...]] = {
    SweepJoin: (0.1, 0.35, 0.7),
    MeshJoin: (0.08, 0.2, 0.5),  # with more, a pass has fewer tuples than the cache has rows
}
STREAMS: dict[str, Callable[[int], Int64s]] = {
    **{f"Zipf {a}": (lambda tuples, a=a: Zipf(a, ROWS, seed=3).keys(tuples)) for a in (1.0, 1.5)},
    "drifting": drifting,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wraps", "stream"),
    [
        *(pytest.param(SweepJoin, stream, id=f"sweep, {name}") for name, stream in STREAMS.items()),
        pytest.param(MeshJoin, STREAMS["Zipf 1.0"], id="mesh, Zipf 1.0", marks=pytest.mark.slow),
    ],
)
def test_a_front_stage_answers_what_the_curve_says(
    relation: Relation, wraps: type[SemiStreamJoin], stream: Callable[[int], Int64s]
) -> None:
    codes = stream(400_000)
    for cache_share in SHARES[wraps]:
        measured = run(relation, codes, wraps, cache_share)
        curve = measured.behind.curve(codes)
        assert curve.hit_rate(measured.rows) == pytest.approx(measured.hit_rate, abs=0.03), measured


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="pass_rows is 0"):
        FrontPolicy(0, 10)
