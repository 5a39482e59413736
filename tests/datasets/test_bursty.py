"""The bursty stream: each virtual stream behaves as HYBRID's appendix means, and the sum is self-similar.

With one row per unit of bandwidth, bit i of a step's arrivals says whether the stream of bandwidth 2**i
is on, so the tests read every stream's state from the totals.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.datasets import Bursty, Zipf
from semistream.errors import InvalidArgument


def bursty(*, streams: int = 10, seed: int = 0, rows_per_unit: int = 1) -> Bursty:
    return Bursty(Zipf(1.0, 10_000, seed=1), streams=streams, seed=seed, rows_per_unit=rows_per_unit)


def hurst(arrivals: npt.NDArray[np.int64], scales: Sequence[int]) -> float:
    """Aggregated variance: the variance of means over m steps falls as m**(2H - 2)."""
    variances = [arrivals[: arrivals.size // m * m].reshape(-1, m).mean(axis=1).var() for m in scales]
    return 1 + float(np.polyfit(np.log(scales), np.log(variances), 1)[0]) / 2


def run_lengths(on: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Lengths of the runs of equal state, without the two that the window cuts."""
    return np.diff(np.flatnonzero(np.diff(on.astype(np.int8))))


def test_arrivals_are_self_similar_and_poisson_arrivals_are_not():
    scales = [1, 2, 4, 8, 16, 32, 64, 128]
    arrivals = bursty().arrivals(2**18)
    poisson = np.random.default_rng(0).poisson(arrivals.mean(), arrivals.size)
    assert hurst(arrivals, scales) > 0.9
    assert 0.45 < hurst(poisson, scales) < 0.55


def test_more_streams_remember_longer():
    scales = [256, 512, 1024]
    assert hurst(bursty(streams=14).arrivals(2**20), scales) > 0.9
    assert hurst(bursty(streams=6).arrivals(2**20), scales) < 0.6


@pytest.mark.parametrize("i", [5, 6, 7, 8])
def test_every_stream_keeps_a_state_for_an_even_time_below_its_bandwidth(i: int):
    runs = run_lengths(((bursty(streams=8).arrivals(2**18) >> i) & 1).astype(np.bool_))
    # Times shorter than a step can fall between two looks and join the runs beside them. The share of
    # such times is about 1 / 2**(i + 1), and a joined run is two times long or more.
    missed = 1 / 2 ** (i + 1)
    assert (runs > 2**i + 1).mean() < 2 * missed
    expected, five_sigma = 2**i / 2, 5 * 2**i / math.sqrt(12 * runs.size)
    assert abs(runs.mean() - expected) < five_sigma + 3 * missed * expected
    below_half = (runs < 2**i / 2).mean()
    assert abs(below_half - 0.5) < 2.5 / math.sqrt(runs.size) + 2 * missed


def test_every_stream_is_on_half_of_the_time():
    arrivals = bursty(streams=8).arrivals(2**19)
    for i in range(1, 9):
        share = ((arrivals >> i) & 1).mean()
        cycles = 2**19 / 2**i
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(cycles), i
    assert (arrivals & 1 == 0).all()
    assert arrivals.max() == 2**9 - 2


def test_all_streams_that_are_due_switch_in_the_same_step():
    arrivals = bursty().arrivals(10_000)
    switched_at_once = np.bitwise_count(arrivals[1:] ^ arrivals[:-1])
    assert switched_at_once.max() >= 3


def test_the_stream_starts_in_equilibrium():
    # 2000 seeds: any step, the first too, has the mean of the process; 5 sigma of the mean over the seeds.
    first, later = (
        np.array(x) for x in zip(*(bursty(streams=6, seed=s).arrivals(12)[[0, 11]] for s in range(2000)), strict=True)
    )
    sigma = math.sqrt(sum(4**i for i in range(1, 7)) / 4 / 2000)
    assert abs(first.mean() - 63) < 5 * sigma
    assert abs(later.mean() - 63) < 5 * sigma
    # The rest of a uniform time on [0, b) has passed by step b / 4 with probability 7/16, not 1/4.
    top = np.array([bursty(streams=6, seed=s).arrivals(17) >> 6 for s in range(2000)])
    switched = (top != top[:, :1]).any(axis=1).mean()
    assert abs(switched - 7 / 16) < 5 * 0.5 / math.sqrt(2000) + 1 / 64


def test_streams_are_independent_of_each_other():
    arrivals = bursty(streams=8).arrivals(2**18)
    states = np.array([(arrivals >> i) & 1 for i in range(1, 6)])
    off_diagonal = np.corrcoef(states)[~np.eye(5, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / math.sqrt(2**18 / 2**5)
    # Streams that shared their random numbers would differ in scale only, and all start alike.
    first = np.array([bursty(streams=6, seed=seed).arrivals(1)[0] for seed in range(500)])
    off_diagonal = np.corrcoef([(first >> i) & 1 for i in range(1, 7)])[~np.eye(6, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / math.sqrt(500)


@given(cuts=st.lists(st.integers(0, 700), max_size=8), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_arrivals_do_not_depend_on_how_they_are_asked_for(cuts: list[int], seed: int):
    parts = bursty(seed=seed)
    pieces = [parts.arrivals(cut) for cut in cuts]
    whole = bursty(seed=seed).arrivals(sum(cuts))
    assert np.concatenate([np.empty(0, np.int64), *pieces]).tolist() == whole.tolist()
    assert parts.step == sum(cuts)


def test_seeds_give_different_arrivals():
    assert bursty(seed=1).arrivals(100).tolist() != bursty(seed=2).arrivals(100).tolist()


def test_rows_per_unit_scales_the_arrivals():
    stream = bursty(rows_per_unit=7)
    assert stream.mean_rows_per_step == 7 * 1023
    assert (stream.arrivals(1000) == 7 * bursty().arrivals(1000)).all()


def test_batches_hold_what_arrived_in_their_steps():
    batches = list(bursty(streams=4).batches(steps_per_batch=3, count=100))
    arrivals = bursty(streams=4).arrivals(300)
    table = pa.Table.from_batches(batches)
    assert [batch.num_rows for batch in batches] == arrivals.reshape(-1, 3).sum(axis=1).tolist()
    assert table.schema.names == ["key", "seq", "step"]
    assert np.bincount(table["step"].to_numpy(), minlength=300).tolist() == arrivals.tolist()
    assert table["seq"].to_numpy().tolist() == list(range(table.num_rows))
    assert table["key"].to_numpy().tolist() == Zipf(1.0, 10_000, seed=1).keys(table.num_rows).tolist()
    assert (np.diff(table["step"].to_numpy()) >= 0).all()


def test_a_time_without_arrivals_is_an_empty_batch():
    batches = list(bursty(streams=2).batches(count=200, name="product"))
    assert len(batches) == 200
    empty = [batch for batch in batches if batch.num_rows == 0]
    assert empty
    assert empty[0].schema == batches[0].schema
    assert empty[0].schema.names == ["product", "seq", "step"]


@given(
    total=st.integers(0, 5000),
    mean=st.integers(1, 1000),
    steps=st.integers(1, 40),
    streams=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_micro_batches_sum_to_the_total(total: int, mean: int, steps: int, streams: int, seed: int):
    stream = bursty(streams=streams, seed=seed)
    batches = list(stream.micro_batches(total, mean, steps_per_batch=steps))
    assert sum(batch.num_rows for batch in batches) == total
    assert all(0 < batch.num_rows <= 2 * mean + 1 for batch in batches)
    seq = [seq for batch in batches for seq in batch["seq"].to_pylist()]
    assert seq == list(range(total))


def test_micro_batches_follow_the_arrivals_and_keep_the_mean():
    sizes = np.array([batch.num_rows for batch in bursty(streams=6, rows_per_unit=5).micro_batches(2_000_000, 500)])
    arrivals = bursty(streams=6).arrivals(sizes.size + 200)
    arrivals = arrivals[arrivals > 0][: sizes.size]
    assert np.abs(sizes - arrivals * (500 / 63))[:-1].max() <= 1  # the last is cut
    assert sizes.mean() == pytest.approx(500, rel=0.05)
    assert hurst(sizes, [1, 2, 4, 8]) > 0.8


BAD: Sequence[tuple[str, Callable[[], object]]] = [
    ("values is 'keys'", lambda: Bursty("keys")),  # type: ignore[arg-type]
    ("streams is 0", lambda: bursty(streams=0)),
    ("streams is 31.*30", lambda: bursty(streams=31)),
    ("seed is -1", lambda: bursty(seed=-1)),
    ("rows_per_unit is 0", lambda: bursty(rows_per_unit=0)),
    ("steps is -1", lambda: bursty().arrivals(-1)),
    ("steps_per_batch is 0", lambda: bursty().batches(0)),
    ("count is -2", lambda: bursty().batches(1, -2)),
    ("name is 'step'", lambda: bursty().batches(name="step")),
    ("total_rows is -1", lambda: bursty().micro_batches(-1, 5)),
    ("mean_rows is 0", lambda: bursty().micro_batches(10, 0)),
    ("steps_per_batch is 0", lambda: bursty().micro_batches(10, 5, steps_per_batch=0)),
    ("name is 'seq'", lambda: bursty().micro_batches(10, 5, name="seq")),
]


@pytest.mark.parametrize(("message", "call"), BAD)
def test_bad_arguments_are_refused_when_they_are_given(message: str, call: Callable[[], object]):
    with pytest.raises(InvalidArgument, match=message):
        call()
