"""Hit rates by size: against caches of each size, and against the front stage that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import Relation
from semistream.costs.miss_ratio import FrontPolicy, MissRatioCurve
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.kernels.array_types import Int64s

ROWS = 40_000
SCHEMA = pa.schema([("key", pa.int64()), ("seq", pa.int64())])


def lru_hits(codes: list[int], size: int, warming: int) -> int:
    cache: list[int] = []
    hits = 0
    for at, code in enumerate(codes):
        if code in cache:
            hits += at >= warming
            cache.remove(code)
        cache.insert(0, code)
        del cache[size:]
    return hits


def lfu_hits(codes: list[int], size: int, warming: int) -> int:
    """A key enters the cache if it was requested as often as the least requested key held."""
    counts: dict[int, tuple[int, int]] = {}
    cache: set[int] = set()
    hits = 0
    for at, code in enumerate(codes):
        hits += code in cache and at >= warming
        counts[code] = counts.get(code, (0, 0))[0] + 1, at
        cache.add(code)
        if len(cache) > size:
            cache.remove(min(cache, key=lambda held: counts[held]))
    return hits


@pytest.mark.parametrize(("policy", "oracle"), [("lru", lru_hits), ("lfu", lfu_hits)])
@settings(deadline=None, max_examples=150)
@given(codes=st.lists(st.integers(-3, 9), min_size=1, max_size=60), warm_up=st.sampled_from([0.0, 0.3, 0.5]))
def test_all_sizes_at_once_are_each_size_by_itself(
    policy: str, oracle: Callable[[list[int], int, int], int], codes: list[int], warm_up: float
) -> None:
    curve = MissRatioCurve.of_sample(np.array(codes, np.int64), policy=policy, warm_up=warm_up)  # type: ignore[arg-type]
    warming = int(warm_up * len(codes))
    sizes = np.arange(len(set(codes)) + 3)
    expected = [oracle(codes, int(size), warming) / (len(codes) - warming) for size in sizes]
    assert curve.hit_rate(sizes) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("exponent", [0.5, 1.5])
@pytest.mark.parametrize("policy", ["lru", "lfu", FrontPolicy(30_000, 15_000)], ids=["lru", "lfu", "front"])
def test_a_sample_of_keys_gives_the_result_of_all(exponent: float, policy: FrontPolicy) -> None:
    codes = Zipf(exponent, 200_000, seed=2).keys(500_000)
    exact = MissRatioCurve.of_sample(codes, policy=policy, most_tuples=codes.size)
    some = MissRatioCurve.of_sample(codes, policy=policy, most_tuples=codes.size // 16)
    sizes = np.geomspace(256 * 16, 200_000, 12)
    assert some.cached_rows.size < exact.cached_rows.size or isinstance(policy, FrontPolicy)
    assert some.hit_rate(sizes) == pytest.approx(exact.hit_rate(sizes), abs=0.02)


def test_a_key_that_is_half_of_the_stream_makes_no_sample_large() -> None:
    codes = np.where(np.random.default_rng(1).random(400_000) < 0.5, 7, Zipf(0.5, 50_000, seed=1).keys(400_000))
    exact = MissRatioCurve.of_sample(codes, policy="lfu")
    for most in (5_000, 20_000, 40_000):
        some = MissRatioCurve.of_sample(codes, policy="lfu", most_tuples=most)
        assert some.cached_rows.size < 3 * most
        assert some.hit_rate([5000, 20_000]) == pytest.approx(exact.hit_rate([5000, 20_000]), abs=0.03)


def test_a_front_stage_is_nearly_lfu_until_hot_keys_change() -> None:
    steady, sizes = Zipf(1.0, ROWS, seed=2).keys(400_000), [300, 1000, 3000]
    front = MissRatioCurve.of_sample(steady, policy=FrontPolicy(20_000, 10_000)).hit_rate(sizes)
    lfu = MissRatioCurve.of_sample(steady, policy="lfu").hit_rate(sizes)
    assert np.all(front < lfu)
    assert front == pytest.approx(lfu, abs=0.03)
    by_pass = [
        MissRatioCurve.of_sample(shifting(400_000), policy=FrontPolicy(rows, rows / 2)).hit_rate(sizes)
        for rows in (1_000, 10_000, 100_000)
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
        curve = MissRatioCurve.of_sample(codes, policy=measured.behind)
        assert curve.hit_rate(measured.rows) == pytest.approx(measured.hit_rate, abs=0.03), measured


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there are 0 codes"):
        MissRatioCurve.of_sample(np.empty(0, np.int64), policy="lru")
    with pytest.raises(InvalidArgument, match="policy is 'mru'"):
        MissRatioCurve.of_sample(np.zeros(3, np.int64), policy="mru")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="pass_rows is 0"):
        FrontPolicy(0, 10)
