"""Hit rates by size, against caches of each size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.costs.miss_ratio import MissRatioCurve
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument

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
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_sample_of_keys_gives_the_result_of_all(exponent: float, policy: Any) -> None:
    codes = Zipf(exponent, 200_000, seed=2).keys(500_000)
    exact = MissRatioCurve.of_sample(codes, policy=policy, most_tuples=codes.size)
    some = MissRatioCurve.of_sample(codes, policy=policy, most_tuples=codes.size // 16)
    sizes = np.geomspace(256 * 16, 200_000, 12)
    assert some.cached_rows.size < exact.cached_rows.size
    assert some.hit_rate(sizes) == pytest.approx(exact.hit_rate(sizes), abs=0.02)


def test_a_key_that_is_half_of_the_stream_makes_no_sample_large() -> None:
    codes = np.where(np.random.default_rng(1).random(400_000) < 0.5, 7, Zipf(0.5, 50_000, seed=1).keys(400_000))
    exact = MissRatioCurve.of_sample(codes, policy="lfu")
    for most in (5_000, 20_000, 40_000):
        some = MissRatioCurve.of_sample(codes, policy="lfu", most_tuples=most)
        assert some.cached_rows.size < 3 * most
        assert some.hit_rate([5000, 20_000]) == pytest.approx(exact.hit_rate([5000, 20_000]), abs=0.03)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there are 0 codes"):
        MissRatioCurve.of_sample(np.empty(0, np.int64), policy="lru")
    with pytest.raises(InvalidArgument, match="policy is 'mru'"):
        MissRatioCurve.of_sample(np.zeros(3, np.int64), policy="mru")  # type: ignore[arg-type]
