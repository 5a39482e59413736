"""Costs of kernels: each call does the work that it is counted for, and what is measured is divided by that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest

from semistream.costs.machine import KernelCosts
from semistream.errors import InvalidArgument
from semistream.tuning.calibration import kernel_probe as kernel_work
from semistream.tuning.calibration.kernel_probe import KernelWork, measure_kernels

ROWS, TUPLES = 3000, 1000


@pytest.fixture(scope="module")
def work() -> KernelWork:
    return KernelWork(ROWS, TUPLES, np.random.default_rng(0))


def ticking() -> Callable[[], float]:
    """A clock on which one second passes between any two looks."""
    seconds = iter(range(10**6))
    return lambda: float(next(seconds))


def test_what_a_call_takes_is_shared_out_among_its_units(work: KernelWork) -> None:
    shares: list[float] = []
    costs = measure_kernels(shares.append, rows=ROWS, tuples=TUPLES, repeats=3, clock=ticking())
    pairs = work.output().units
    tuple_s = 1 / TUPLES
    assert costs == KernelCosts(
        encode_s=tuple_s,
        insert_s=tuple_s,
        sort_s=tuple_s,
        probe_s=1 / ROWS,
        look_up_s=tuple_s,
        expire_s=tuple_s,
        output_s=1 / pairs,
        gather_s=1 / (14 * pairs),
    )
    assert shares == [i / 8 for i in range(9)]


def test_one_slow_call_does_not_count() -> None:
    def costs(slow: set[int]) -> KernelCosts:
        looks, now = iter(range(10**6)), 0.0

        def clock() -> float:
            nonlocal now
            look = next(looks)
            now += 1000.0 if look % 10 in slow else 1.0
            return now

        return measure_kernels(rows=ROWS, tuples=TUPLES, repeats=5, clock=clock)

    assert costs(slow={1, 5}) == costs(slow=set())


def test_real_costs_are_numbers_above_zero() -> None:
    costs = measure_kernels(rows=ROWS, tuples=TUPLES, repeats=3)
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in asdict(costs).values())


def test_about_half_of_the_tuples_make_a_pair_and_pairs_are_right(work: KernelWork) -> None:
    tuples, page, row = work._pairs
    assert 0.3 * TUPLES < tuples.size < 0.7 * TUPLES
    keys = np.concatenate(work._codes)
    run = work._pages.run()
    assert np.array_equal(keys[tuples], run.words[run.code_starts[page] + row])
    codes = np.concatenate([run.words[a : a + n] for a, n in zip(run.code_starts, run.rows, strict=True)])
    assert tuples.size == np.count_nonzero(np.isin(keys, codes))
    assert work.probe().call() == [tuples.size]


def test_half_of_the_look_ups_are_hits(work: KernelWork) -> None:
    (hits,) = work.look_up().call()
    assert 0.4 * TUPLES < hits < 0.6 * TUPLES
    assert hits == np.count_nonzero(work._cache.holds(work._looked_up))


def test_a_window_is_filled_and_emptied(work: KernelWork, monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[kernel_work.StreamWindow] = []

    class Noted(kernel_work.StreamWindow):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            windows.append(self)

    monkeypatch.setattr(kernel_work, "StreamWindow", Noted)
    work.insert().call()
    assert windows[0].held == TUPLES
    expire = work.expire()
    assert windows[1].held == TUPLES
    expire.call()
    assert windows[1].held == 0


def test_values_that_are_gathered_are_those_of_the_rows(work: KernelWork) -> None:
    prepared = work.gather()
    arrays = prepared.call()
    assert sum(map(len, arrays)) == prepared.units
    _, page, row = work._pairs
    run = work._pages.run()
    first = [run.batch(int(p), ["column0"]).column(0)[int(r)].as_py() for p, r in zip(page[:50], row[:50], strict=True)]
    assert arrays[0].to_pylist()[:50] == first


@pytest.mark.parametrize("sizes", [{"rows": 63}, {"tuples": 1}, {"repeats": 0}])
def test_too_little_to_measure_is_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="give at least 64, 64 and 1"):
        measure_kernels(**sizes)
