"""Hot keys in the sweep's model: the part of their work that the disk cannot overlap, and their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.machine import Machine, OperatorCosts
from semistream.costs.prediction import predict
from semistream.costs.workload import Workload
from semistream.datasets import Zipf
from semistream.joins.sweep.cost_model import SweepModel
from semistream.relation import DiskCosts

KEYS, PAGES, PAGE_BYTES, RUN_PAGES, TUPLES = 200_000, 2000, 8192, 8, 400_000
DISK = DiskCosts(0.0, transfer_s_per_byte=1e-9)
MODEL = SweepModel(
    1 << 30, level_rows=TUPLES, run_bytes=RUN_PAGES * PAGE_BYTES, trims=True, row_bytes=lambda _: 16, batch_rows=1e12
)


def workload(exponent: float) -> Workload:
    return Workload(KeyFrequencies.zipf(exponent, KEYS), KEYS, PAGES, PAGE_BYTES, batch_rows=TUPLES)


def simulated_s(tuples_of_runs: np.ndarray, read_s: float, tuple_s: float, held: int) -> float:
    """Return the time of a pass that reads each run when there is room, and joins it when it has arrived."""
    read, joined = [0.0], [0.0]
    for i, tuples in enumerate(tuples_of_runs):
        free = joined[i - held + 1] if i >= held else 0.0
        read.append(max(read[-1], free) + read_s)
        joined.append(max(joined[-1], read[-1]) + tuples * tuple_s)
    return joined[-1]


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0, 1.2, 1.4])
@pytest.mark.parametrize("disk_share", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("held", [2, 3])
def test_a_pass_takes_as_long_as_a_simulated_one(held: int, disk_share: float, exponent: float) -> None:
    """There, disk and processor wait for each other only because of the keys; the expectation allows for chance."""
    runs, tuple_s = PAGES // RUN_PAGES, 50e-9
    keys = np.random.default_rng(1).permutation(KEYS)[Zipf(exponent, KEYS, seed=5).keys(TUPLES)]
    tuples_of_runs = np.bincount(keys * runs // KEYS, minlength=runs)
    disk_s, processor_s = disk_share * tuple_s * TUPLES, tuple_s * TUPLES
    taken_s = simulated_s(tuples_of_runs, disk_s / runs, tuple_s, held)
    disk = DiskCosts(0.0, transfer_s_per_byte=disk_s / (PAGES * PAGE_BYTES))
    machine = Machine("here", disk, operators={"sweep": OperatorCosts(tuple_s=tuple_s)})
    found = predict("sweep", replace(MODEL, runs=held), workload(exponent), machine, memory_bytes=1)
    alone_s = machine.alone_s("sweep", found.work, workload(exponent)) * TUPLES
    assert found.disk_s * TUPLES == pytest.approx(disk_s, rel=0.02)
    least_s = alone_s + max(disk_s, processor_s - alone_s)
    assert 0.97 * least_s <= taken_s <= 1.03 * TUPLES / found.rate
    assert least_s == pytest.approx(taken_s, rel=0.15)


def test_only_hot_keys_leave_the_disk_nothing_to_do() -> None:
    shares = [MODEL.work(workload(exponent), DISK).clumped for exponent in (0.0, 0.8, 1.0, 1.6)]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert shares[-1] > 0.6
    alone = replace(MODEL, runs=1)
    assert alone.work(workload(1.6), DISK).clumped == 0, "then the disk never works beside it"


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.6])
def test_fresh_rows_are_those_that_differ(exponent: float) -> None:
    keys = Zipf(exponent, KEYS, seed=3).keys(TUPLES)
    assert MODEL.work(workload(exponent), DISK).fresh * TUPLES == pytest.approx(np.unique(keys).size, rel=0.03)


def test_values_of_fresh_rows_cost_more() -> None:
    asked = Workload(KeyFrequencies.zipf(1.0, KEYS), KEYS, PAGES, PAGE_BYTES, batch_rows=TUPLES, values_per_result=10)
    work = MODEL.work(asked, DISK)
    plain, fresh = (
        Machine("here", DISK, operators={"sweep": OperatorCosts(tuple_s=1e-9, fresh_s=cost)}) for cost in (0.0, 2e-9)
    )
    more_s = fresh.processor_s("sweep", work, asked) - plain.processor_s("sweep", work, asked)
    assert more_s == pytest.approx(work.fresh * 10 * 2e-9)
    behind = work.behind_cache(0.75)
    assert (behind.fresh, behind.clumped) == pytest.approx((0.25 * work.fresh, 0.25 * work.clumped))
