"""Tuples served by an iteration of HYBRIDJOIN: the model against a simulation of the algorithm."""

from __future__ import annotations

from collections import deque

import pytest

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.joins.hybrid.cost_model import HybridModel

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


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="waiting_rows is 0"):
        HybridModel(KeyFrequencies.uniform(10), 10, 2, 0)
