"""KeySketch against streams with a known distribution, and its memory."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semistream.costs.key_sketch import LEAST_SAMPLES, HeavyKeys, KeySketch, OneInMany, ThinnedSample
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from tests.costs.distributions import EVERY, Known, hot_set, zipf
from tests.costs.test_sampled_frequencies import assert_close

BATCH = 10_000


def watch(sketch: KeySketch, codes: Int64s, batch: int = BATCH) -> None:
    for begin in range(0, codes.size, batch):
        sketch.observe(codes[begin : begin + batch])


@pytest.mark.parametrize("known", EVERY, ids=str)
def test_a_sketch_tells_the_distribution(known: Known) -> None:
    sketch = KeySketch(known.num_keys, stride=8)
    watch(sketch, known.draw(400_000, 1))
    found = sketch.frequencies()
    assert found is not None
    assert_close(found, known.exact, 20_000, points=3, rel=0.1)


@pytest.mark.parametrize("known", [zipf(1.0, 10**6), zipf(1.5, 10**9), hot_set(10, 0.9, 10**6)], ids=str)
def test_32_kilobytes_suffice_to_judge_a_cache(known: Known) -> None:
    sketch = KeySketch(known.num_keys, nbytes=1 << 15, stride=8)
    watch(sketch, known.draw(400_000, 1))
    found = sketch.frequencies()
    assert found is not None
    for hottest in (1, 10, 100, 1000, 10_000):
        assert found.share(hottest) == pytest.approx(known.exact.share(hottest), abs=0.06)


def test_heavy_keys_are_counted_over_more_tuples_than_are_kept() -> None:
    """Keys with a tenth of the stream: the few codes kept give their shares to within a tenth."""
    known = hot_set(4, 0.4, 10**6)
    sketch = KeySketch(known.num_keys, nbytes=1 << 15, stride=1)
    watch(sketch, known.draw(60_000, 2))
    found = sketch.frequencies()
    assert found is not None
    assert sketch._capacity < 1000
    assert found.keys[:4].tolist() == [1, 1, 1, 1]
    assert found.probability[:4] == pytest.approx(0.1, rel=0.04)


def test_nothing_is_said_of_a_few_tuples() -> None:
    sketch = KeySketch(100, stride=1)
    sketch.observe(np.arange(LEAST_SAMPLES - 1))
    assert sketch.frequencies() is None
    sketch.observe(np.arange(1))
    assert sketch.samples == LEAST_SAMPLES
    assert sketch.frequencies() is not None


@pytest.mark.parametrize(("before", "after"), [(zipf(1.5, 10**6), zipf(0.0, 10**6)), (EVERY[0], zipf(1.0, 10**6))])
def test_it_follows_the_stream(before: Known, after: Known) -> None:
    """After a horizon, the estimate depends on the later tuples alone."""
    stride, horizon = 4, 1 << 15
    sketch = KeySketch(10**6, stride=stride, horizon=horizon)
    watch(sketch, before.draw(3 * stride * horizon, 1))
    watch(sketch, after.draw(stride * horizon, 2))
    assert 3 / 8 * horizon <= sketch.samples <= horizon
    found = sketch.frequencies()
    assert found is not None
    assert_close(found, after.exact, horizon // 2, points=3, rel=0.1)


@settings(deadline=None, max_examples=10)
@given(cuts=st.lists(st.integers(0, 60_000), max_size=30), seed=st.integers(0, 3), stride=st.sampled_from([1, 7, 64]))
def test_batches_make_no_difference(cuts: list[int], seed: int, stride: int) -> None:
    codes = zipf(1.0, 1000).draw(60_000, 5)
    whole, parts = (KeySketch(1000, nbytes=1 << 16, stride=stride, horizon=4096, seed=seed) for _ in range(2))
    whole.observe(codes)
    for part in np.split(codes, sorted(cuts)):
        parts.observe(part)
    one, other = whole.frequencies(), parts.frequencies()
    assert one is not None
    assert other is not None
    assert one.keys.tolist() == other.keys.tolist()
    assert one.probability.tolist() == other.probability.tolist()


def test_to_ask_makes_no_difference() -> None:
    codes = zipf(1.0, 1000).draw(100_000, 5)
    asked, left_alone = (KeySketch(1000, nbytes=1 << 16, stride=4) for _ in range(2))
    for begin in range(0, codes.size, BATCH):
        asked.observe(codes[begin : begin + BATCH])
        asked.frequencies()
    watch(left_alone, codes)
    one, other = asked.frequencies(), left_alone.frequencies()
    assert one is not None
    assert other is not None
    assert one.probability.tolist() == other.probability.tolist()


@pytest.mark.parametrize("stride", [1, 3, 64])
def test_every_tuple_is_chosen_as_likely(stride: int) -> None:
    rows, trials = 4 * stride, 4000
    chosen = np.zeros(rows)
    for seed in range(trials):
        np.add.at(chosen, OneInMany(stride, np.random.default_rng(seed)).choose(np.arange(rows)), 1)
    assert chosen.sum() == 4 * trials  # one in each block
    assert chosen / trials == pytest.approx(1 / stride, abs=5 / np.sqrt(trials * stride))


@settings(deadline=None, max_examples=50)
@given(cuts=st.lists(st.integers(0, 3000), max_size=20), stride=st.sampled_from([1, 3, 10]))
def test_one_tuple_of_each_block_is_chosen(cuts: list[int], stride: int) -> None:
    chooser, rows = OneInMany(stride, np.random.default_rng(4)), np.arange(3000)
    chosen = np.concatenate([chooser.choose(part) for part in np.split(rows, sorted(cuts))])
    assert (chosen // stride).tolist() == list(range(3000 // stride))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 90)), capacity=st.integers(1, 10).map(lambda half: 2 * half))
def test_a_thinned_sample_is_spread_evenly(sizes: list[int], capacity: int) -> None:
    sample, added = ThinnedSample(capacity), np.arange(sum(sizes))
    for part in np.split(added, np.cumsum(sizes)[:-1]) if sizes else []:
        sample.add(part)
    assert sample.codes.tolist() == added[:: sample.step].tolist()
    assert sample.every(2 * sample.step).tolist() == added[:: 2 * sample.step].tolist()
    assert sample.codes.size <= capacity
    assert sample.step == 1 or sample.codes.size >= capacity // 2


@pytest.mark.parametrize("nbytes", [1 << 15, 1 << 18, 1 << 20])
@pytest.mark.parametrize("known", [zipf(0.0, 10**9), zipf(1.0, 10**6)], ids=str)
def test_it_takes_no_more_than_it_says(known: Known, nbytes: int) -> None:
    """Trace the memory of Python and numpy, and count the slots of the frequent-items sketch."""
    codes = known.draw(600_000, 3)
    KeySketch(10).observe(codes)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        sketch = KeySketch(known.num_keys, nbytes=nbytes, stride=2)
        assert sketch.memory_bytes <= nbytes
        for begin in range(0, codes.size, BATCH):
            sketch.observe(codes[begin : begin + BATCH])
            if begin % (10 * BATCH) == 0:
                sketch.frequencies()
        traced = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    slots = 1 << sketch._bits
    heavy = [generation.heavy for generation in sketch._generations]
    assert len(heavy) == 2
    assert all(each.num_keys <= 0.75 * slots for each in heavy)
    assert traced + 3 * 18 * slots <= sketch.memory_bytes + 16_384  # objects of Python, whatever its size
    assert sys.getsizeof(2**62) <= 36


@settings(deadline=None, max_examples=30)
@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=300), bits=st.integers(3, 6), parts=st.integers(1, 3))
@example(counts=[1] * 7, bits=3, parts=1)  # none has a slot in the end
def test_heavy_keys_are_not_lost(counts: list[int], bits: int, parts: int) -> None:
    codes, numbers = np.arange(len(counts)), np.array(counts, np.int64)
    several = [HeavyKeys(bits) for _ in range(parts)]
    for number, each in enumerate(several):
        each.add(codes[number::parts], numbers[number::parts])
    together = HeavyKeys.merged(bits, several)
    assert together.total == numbers.sum()
    found = together.above(0)
    assert np.all(np.diff(found.codes) > 0)
    error = 3.5 / 2**bits * numbers.sum()
    assert np.all(np.abs(found.counts - numbers[found.codes]) <= error)
    assert set(np.flatnonzero(numbers > error).tolist()) <= set(found.codes.tolist())


@pytest.mark.parametrize(("name", "value"), [("num_keys", 0), ("nbytes", 1000), ("stride", 0), ("horizon", 10)])
def test_nonsense_is_refused(name: str, value: int) -> None:
    arguments = {"num_keys": 10, name: value}
    with pytest.raises(InvalidArgument, match=f"{name} is {value}"):
        KeySketch(**arguments)
