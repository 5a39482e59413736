"""The choice of b and w against brute force over all of them, and the models it rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream.costs.machine import Machine, OperatorCosts
from semistream.errors import InvalidArgument
from semistream.joins.mesh.cost_model import MeshCosts, MeshFactors, MeshTuner, steps_to_try
from semistream.joins.mesh.memory import MeshMemory
from semistream.joins.parts.memory_split import LEAST_SLOTS
from semistream.relation import DiskCosts, RunReader

MOST_PAGES, MOST_ROWS = 40, 200
times = st.floats(0, 0.01)


@st.composite
def tuners(draw: st.DrawFn) -> MeshTuner:
    """A small relation, a budget of which more than ``MOST_ROWS`` tuples never fit, and any costs."""
    factors = MeshFactors(
        seek_s=draw(st.floats(1e-4, 0.02)),
        transfer_s=draw(times),
        expire_s=draw(st.sampled_from([0.0, 1e-5])),
        stream_s=0.0,
        add_s=draw(st.sampled_from([0.0, 1e-4, 2e-3])),
        probe_s=draw(st.sampled_from([0.0, 1e-5])),
        output_s=draw(st.sampled_from([0.0, 1e-5])),
        packet_s=draw(st.sampled_from([0.0, 0.01])),
    )
    costs = MeshCosts(factors, rows_per_page=8, correction=draw(st.sampled_from([0.5, 1.0, 3.0])))
    tuple_bytes = draw(st.integers(50, 400))
    memory = MeshMemory(
        pool=0,
        num_pages=draw(st.integers(1, MOST_PAGES)),
        page_bytes=draw(st.sampled_from([500, 4096, 9000])),
        widest_page=9000,
        run_cost=lambda run_bytes, pages: RunReader.memory_bytes(run_bytes, 3) + 300 * pages,
        slot_bytes=33,
        tuple_bytes=tuple_bytes,
        widest_tuple=draw(st.integers(1, 4000)),
        admit_row_bytes=48,
        admit_rows=draw(st.sampled_from([1, 10, 1000])),
        one_by_one=draw(st.booleans()),
    )
    least = memory.buffer_bytes(1) + memory.admit_bytes(1) + memory.window_bytes(LEAST_SLOTS)
    least += max(LEAST_SLOTS * tuple_bytes, memory.widest_tuple)
    return MeshTuner(costs, replace(memory, pool=least + draw(st.integers(0, 12_000))))


def all_that_fit(tuner: MeshTuner) -> list[tuple[int, int]]:
    memory = tuner.memory
    pages = range(1, memory.num_pages + 1) if memory.fixed_pages is None else [memory.fixed_pages]
    return [(b, w) for b, w in product(pages, range(1, MOST_ROWS + 1)) if memory.fits(b, w)]


some = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@given(tuner=tuners(), rate=st.floats(0.1, 20_000))
@some
def test_the_least_memory_for_a_rate_is_that_of_brute_force(tuner: MeshTuner, rate: float) -> None:
    sustaining = [(b, w) for b, w in all_that_fit(tuner) if tuner.service_rate(b, w) >= rate * (1 - 1e-12)]
    chosen = tuner.least_memory(rate)
    if not sustaining:
        assert chosen is None
        return
    assert chosen is not None
    b, w = chosen.pages_per_step, chosen.rows_per_step
    assert tuner.memory.fits(b, w)
    assert tuner.service_rate(b, w) >= rate * (1 - 1e-9)
    assert tuner.memory.total(b, w) == min(tuner.memory.total(*pair) for pair in sustaining)


@given(tuner=tuners())
@some
def test_the_greatest_rate_is_that_of_brute_force(tuner: MeshTuner) -> None:
    fitting = all_that_fit(tuner)
    assert not any(tuner.memory.fits(b, MOST_ROWS) for b in range(1, tuner.memory.num_pages + 1))
    chosen = tuner.greatest_rate()
    b, w = chosen.pages_per_step, chosen.rows_per_step
    best = max((tuner.service_rate(*pair) for pair in fitting), default=0.0)
    if tuner.memory.most_rows(b) >= 1:
        assert tuner.memory.fits(b, w)
        assert tuner.service_rate(b, w) == pytest.approx(best)
    else:  # a window that takes a tuple in some iterations only, and is faster than any that takes one in each
        assert w == 1
        assert tuner.memory.buffer_bytes(b) < tuner.memory.pool
        assert tuner.service_rate(b, tuner.memory.most_rows(b)) > best


@given(tuner=tuners())
@some
def test_the_most_rows_fit_and_one_more_does_not(tuner: MeshTuner) -> None:
    for b in range(1, tuner.memory.num_pages + 1):
        most = math.floor(tuner.memory.most_rows(b))
        assert most < 1 or tuner.memory.fits(b, most)
        assert not tuner.memory.fits(b, max(most, 0) + 1)


@given(tuner=tuners(), num_pages=st.integers(1, 10**6))
@some
def test_pages_that_come_one_by_one_take_no_more_memory_for_a_larger_b(tuner: MeshTuner, num_pages: int) -> None:
    memory = replace(tuner.memory, one_by_one=True, num_pages=num_pages)
    assert memory.fixed_pages is not None
    assert memory.buffer_bytes(memory.fixed_pages) == memory.buffer_bytes(1)
    assert memory.loops(memory.fixed_pages) == 1
    assert memory.fixed_pages == 1 or memory.loops(memory.fixed_pages - 1) > 1
    assert replace(memory, one_by_one=False).fixed_pages is None


@given(num_pages=st.integers(1, 5000))
@settings(deadline=None)
def test_all_numbers_of_iterations_are_tried_with_their_least_b(num_pages: int) -> None:
    tried = steps_to_try(num_pages)
    assert {math.ceil(num_pages / b) for b in range(1, num_pages + 1)} == {math.ceil(num_pages / b) for b in tried}
    assert {-(-num_pages // q) for q in range(1, num_pages + 1)} <= set(tried) <= set(range(1, num_pages + 1))
    assert len(tried) <= 2 * math.isqrt(num_pages) + 2


def test_the_cost_of_an_iteration_is_mesh_2() -> None:
    factors = MeshFactors(
        seek_s=5.0, transfer_s=2.0, expire_s=0.1, stream_s=0.2, add_s=0.3, probe_s=0.01, output_s=0.001, packet_s=0.5
    )
    costs = MeshCosts(factors, rows_per_page=64, results_per_row=2)
    b, w = 10, 7
    assert costs.loop_s(b, w) == pytest.approx(
        (5 + 10 * 2) + 7 * (0.1 + 0.2 + 0.3) + 10 * 64 * 0.01 + 7 * 2 * 0.001 + 0.5
    )
    assert costs.service_rate(b, w) == pytest.approx(7 / costs.loop_s(b, w))
    least = costs.least_rows(0.5, b)
    assert 0.5 * costs.loop_s(b, least) <= least
    assert 0.5 * costs.loop_s(b, least - 1) > least - 1
    assert costs.least_rows(2.0, b) is None  # a tuple takes 0.602 s: more than half a second
    assert replace(costs, correction=3.0).loop_s(b, w) == pytest.approx(3 * costs.loop_s(b, w))


def test_the_factors_of_a_machine_come_from_its_disk_and_the_nearest_measured_operator() -> None:
    disk = DiskCosts(0.004, 1e-8)
    own = OperatorCosts(
        tuple_s=1e-7, entry_s=2e-8, value_s=5e-9, row_s=3e-9, step_s=2e-3, packet_s=6e-4, batch_s=1.0, hit_s=1.0
    )
    other = OperatorCosts(tuple_s=1.0)

    def factors(operators: dict[str, OperatorCosts]) -> MeshFactors:
        return MeshFactors.of(Machine("here", disk, operators), page_bytes=5000, values_per_result=3)

    found = factors({"mesh": other, "adaptive_mesh": own, "sweep": other})
    assert found == factors({"mesh": own, "sweep": other})
    assert (found.seek_s, found.transfer_s) == (0.004, pytest.approx(5e-5))
    assert (found.probe_s, found.packet_s) == (3e-9, pytest.approx(2.6e-3))
    assert found.row_s(0) == pytest.approx(1.2e-7)
    assert found.row_s(2) == pytest.approx(1.5e-7)
    assert factors({"sweep": other}) == MeshFactors(found.seek_s, found.transfer_s)


def test_an_iteration_costs_one_step_however_many_loops_it_does_at_once() -> None:
    """As `AdaptiveMeshJoin` counts its steps, by which they were measured."""
    machine = Machine("here", DiskCosts(0.0), {"adaptive_mesh": OperatorCosts(tuple_s=0.0, step_s=2e-3)})
    costs = MeshCosts(MeshFactors.of(machine, page_bytes=5000, values_per_result=3), rows_per_page=64)
    for loops in (1, 4, 16):
        assert loops * costs.loop_s(10, 7, packets=1 / loops) == pytest.approx(2e-3)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_costs_that_make_no_sense_are_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="seek_s is"):
        MeshFactors(seek_s=value)
