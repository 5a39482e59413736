"""What an iteration of HYBRIDJOIN serves: the model against a simulation of the algorithm, and HYBRID's own figures."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.joins.hybrid.cost_model import HybridModel
from semistream.joins.mesh.cost_model import MeshFactors

ROWS, PART = 6_000, 30


def simulated(exponent: float, waiting_rows: int, iterations: int) -> float:
    """Tuples served by an iteration of HYBRID Fig. 5, on average: the oldest one says which part is read, all that wait
    for that part are served, and as many come in their place.
    """
    stream = Zipf(exponent, ROWS, seed=3)
    parts = deque((stream.keys(waiting_rows + 40 * iterations) // PART).tolist())
    queue: deque[int] = deque()
    held: dict[int, int] = {}
    served, measured = 0, 0
    for iteration in range(iterations):
        while sum(held.values()) < waiting_rows and parts:
            part = parts.popleft()
            queue.append(part)
            held[part] = held.get(part, 0) + 1
        while queue[0] not in held:
            queue.popleft()  # was served with another one
        part = queue.popleft()
        now = held.pop(part)
        queue = deque(other for other in queue if other != part)
        if iteration >= iterations // 2:
            served, measured = served + now, measured + 1
    return served / measured


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("waiting_rows", [50, 300, 1500])
def test_the_rows_that_an_iteration_serves(exponent: float, waiting_rows: int) -> None:
    model = HybridModel(KeyFrequencies.zipf(exponent, ROWS), ROWS, PART, waiting_rows)
    assert model.served_rows() == pytest.approx(simulated(exponent, waiting_rows, 600), rel=0.15)


def test_k_comes_down_to_two_without_skew() -> None:
    factors = []
    for waiting_rows in (4_000, 20_000, 100_000, 500_000):
        model = HybridModel(KeyFrequencies.uniform(2_000_000), 2_000_000, 500, waiting_rows)
        factors.append(model.served_rows() / model.published_served_rows(k=1.0))
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(2, rel=1e-3)
    assert factors[0] > 2.4


def test_the_rate_rises_and_falls_with_the_disk_buffer() -> None:
    """HYBRID 4.5 and Fig. 6: R of 2 million tuples of 120 bytes, 50 MB, exponent 1; a small disk buffer serves few, a
    large one takes long to read and leaves less memory for the stream.
    """
    factors = MeshFactors(0.008, 0.0001, expire_s=1e-6, stream_s=1e-6, add_s=2e-6, probe_s=1e-6, output_s=2e-6)
    memory, row_bytes, tuple_bytes, page = 50 << 20, 120, 20, 8192
    sizes = [page << shift for shift in range(13)]
    rates = []
    for size in sizes:
        waiting = (memory - size) / (tuple_bytes * 8)  # the paper's hash table takes many times a tuple's bytes
        model = HybridModel(KeyFrequencies.zipf(1.0, 2_000_000), 2_000_000, size // row_bytes, waiting)
        rates.append(model.rate(factors, size / page))
    best = int(np.argmax(rates))
    assert 0 < best < len(sizes) - 1
    assert np.all(np.diff(rates[: best + 1]) > 0)
    assert np.all(np.diff(rates[best:]) < 0)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="waiting_rows is 0"):
        HybridModel(KeyFrequencies.uniform(10), 10, 2, 0)
