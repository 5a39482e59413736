"""The overload controller, by simulation: it keeps the goal with the least possible loss under any load."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.pipelines.overload.controller import OverloadController
from semistream.pipelines.overload.service_times import Observation, ServiceModel, ServiceTimes
from tests.pipelines.overload.overload_world import CAPACITY, World, expected, simulate

SETTLED_S = 100.0
MEASURED = [Observation(1 + rows * 1e-5, rows, 0) for rows in (10_000, 50_000, 200_000, 100_000)]
"""Batches from which it is known that a row takes ten microseconds, and a batch one second besides."""


@pytest.mark.parametrize("times", [0.1, 0.5, 0.7, 0.85])
def test_nothing_is_shed_below_capacity(times):
    run, _ = simulate(World(lambda _: times))
    assert run.shed == 0
    assert run.latency_s.max() <= 30


@pytest.mark.parametrize("times", [1.0, 1.5, 2.0, 4.0])
def test_a_steady_overload_keeps_the_goal_and_joins_all_it_can(times):
    settled = simulate(World(lambda _: times))[0].after(SETTLED_S)
    assert settled.shed > 0
    assert settled.p95_s() <= 30
    assert settled.joined_per_s >= 0.85 * CAPACITY


def test_ten_times_the_capacity_keeps_the_goal_though_shedding_itself_takes_time():
    settled = simulate(World(lambda _: 10.0))[0].after(SETTLED_S)
    assert settled.p95_s() <= 30
    assert settled.joined_per_s >= 0.7 * CAPACITY, "nine rows of ten are shed, each for a fiftieth of a join"


def test_equal_overload_gives_equal_batches():
    settled = simulate(World(lambda _: 3.0, noise=0.0))[0].after(SETTLED_S)
    assert np.ptp(settled.joined) <= 0.05 * settled.joined.mean(), "batches oscillate"


@given(
    before=st.sampled_from([0.1, 0.5, 0.9, 2.0]),
    after=st.sampled_from([0.2, 0.8, 2.0, 4.0]),
    goal_s=st.sampled_from([15.0, 30.0, 60.0]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=10, deadline=None)
def test_a_rate_that_jumps_is_followed(before, after, goal_s, seed):
    jump = 6 * goal_s
    world = World(lambda t: before if t < jump else after, goal_s=goal_s)
    run, controller = simulate(world, 12 * goal_s, seed)
    settled, full_s = run.after(jump + 3 * goal_s), controller.batch_s
    assert settled.p95_s() <= goal_s
    if after < 0.8 * (full_s - world.fixed_s) / (full_s + world.gap_s):
        assert settled.shed == 0
    elif after > 1:
        ideal = (full_s - world.fixed_s) / (full_s + world.gap_s) - world.shed_share * after
        assert settled.joined_per_s >= 0.9 * ideal * CAPACITY


@pytest.mark.parametrize(
    "slow", [lambda t: 1 + 0.3 * math.sin(t / 80), lambda t: 1 + t / 1000, lambda t: max(2 - t / 400, 1.0)]
)
def test_a_service_that_drifts_is_followed(slow):
    settled = simulate(World(lambda _: 2.0, slow=slow), 800)[0].after(SETTLED_S)
    assert settled.p95_s() <= 30
    speed = np.mean([1 / slow(t) for t in settled.at])
    assert settled.joined_per_s >= 0.8 * speed * CAPACITY


@pytest.mark.parametrize("jump_s", [-86400.0, -20.0, 20.0, 86400.0, 1e12])
def test_a_clock_that_jumps_changes_little(jump_s):
    jumping = World(lambda _: 2.0, wall=lambda t: t + (jump_s if t > 200 else 0))
    settled = simulate(jumping)[0].after(SETTLED_S)
    assert settled.p95_s() <= 30
    assert settled.joined_per_s >= 0.85 * CAPACITY
    calm = World(lambda _: 0.5, wall=lambda t: t + (jump_s if t > 200 else 0))
    assert simulate(calm)[0].shed == 0


@given(st.floats(-1e15, 1e15), st.integers(0, 10**9), st.integers(0, 10**6))
def test_any_age_and_any_rows_get_a_sound_allowance(oldest_s, rows, owed):
    now = 0.0
    controller = OverloadController(30.0, 1.0, lambda: now, MEASURED)
    controller.begin()
    assert controller.measured
    allowed = controller.allow(rows, oldest_s=oldest_s, owed=owed)
    assert 0 <= allowed <= rows
    least = controller.model.joinable(rows, controller.batch_s / 2 - controller.model.joined_s * owed)
    in_quarter = (controller.batch_s / 4 - controller.model.fixed_s) / controller.model.joined_s
    most = max(controller.model.joinable(rows, controller.batch_s), min(rows, in_quarter))
    assert least <= allowed <= most


def test_a_quarter_of_the_time_is_for_joins_even_if_shedding_takes_all_of_it():
    seen = [Observation(2.5, 100_000, 0), Observation(1.5, 0, 100_000), Observation(4.5, 200_000, 0)]
    controller = OverloadController(30.0, 1.0, lambda: 0.0, seen)
    model = controller.model
    rows = int(10 * controller.batch_s / model.shed_s)
    assert model.joinable(rows, controller.batch_s) == 0
    joined = controller.allow(rows, oldest_s=1.0)
    assert model.seconds(joined) == pytest.approx(controller.batch_s / 4, rel=0.01)


def test_owed_rows_leave_less_for_others():
    controller = OverloadController(30.0, 1.0, lambda: 0.0, [Observation(2.0, 100_000, 0)] * 4)
    free = controller.allow(10**7, oldest_s=1.0)
    assert controller.allow(10**7, oldest_s=1.0, owed=100_000) == pytest.approx(free - 100_000, rel=0.05)
    assert controller.allow(10**7, oldest_s=1.0, owed=10**8) == 0


def test_a_goal_below_the_fixed_time_of_a_batch_is_not_attainable_and_rows_still_are_joined():
    run, controller = simulate(World(lambda _: 2.0, goal_s=6.0, fixed_s=5.0))
    assert not controller.attainable
    assert controller.least_goal_s > 10
    assert run.after(SETTLED_S).joined_per_s >= 0.15 * CAPACITY
    assert simulate(World(lambda _: 2.0, goal_s=30.0))[1].attainable


@pytest.mark.parametrize("slower", [1.0, 4.0, 10.0])
def test_before_rows_are_shed_shedding_costs_the_expected_share_of_a_join(slower):
    world = World(lambda _: 4.0, backlog_s=1.0)
    thought = ServiceModel(world.fixed_s, slower / CAPACITY, slower * world.shed_share / CAPACITY)
    run, _ = simulate(world, prior=thought)
    first = int(np.argmax(run.joined < run.rows))
    assert run.joined[first] == pytest.approx(run.joined[first:].mean(), rel=0.25), "the first that sheds joins as much"
    assert ServiceTimes(MEASURED, thought).model.shed_s == pytest.approx(world.shed_share * 1e-5, rel=0.01)


def test_a_slow_first_batch_does_not_last():
    times = ServiceTimes(MEASURED)
    times.add(Observation(25.0, 100_000, 0))  # 2 seconds are usual
    assert times.model.seconds(100_000) < 4
    for rows in (100_000, 120_000):
        times.add(Observation(1 + rows * 1e-5, rows, 0))
    assert times.model.seconds(100_000) == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize(("backlog_s", "times"), [(5.0, 0.5), (5.0, 3.0), (9.0, 2.0), (18.0, 1.0), (18.0, 0.1)])
@pytest.mark.parametrize(("start_s", "age_s"), [(0.0, 0.0), (0.0, 3600.0), (6.0, 0.0)])
def test_a_first_backlog_that_the_goal_has_time_for_is_joined(backlog_s, times, start_s, age_s):
    world = World(lambda _: 0.5, backlog_s=backlog_s, backlog_age_s=age_s, start_s=start_s)
    run, controller = simulate(world, prior=expected(world, times))
    assert run.joined[0] == run.rows[0] == backlog_s * CAPACITY
    assert controller.batch_s < 12, "a batch of a steady overload gets less than some of these take"
    assert run.latency_s[1:].max() <= 30 + start_s, "those that came when it had begun are in time"
    assert (run.joined[3:] == run.rows[3:]).all()


@pytest.mark.parametrize("rate", [0.5, 2.0])
@pytest.mark.parametrize("times", [1.0, 3.0])
def test_too_large_a_first_backlog_is_shed_until_the_next_rows_are_on_time(rate, times):
    world = World(lambda _: rate, backlog_s=600.0)
    run, controller = simulate(world, prior=expected(world, times))
    assert run.rows[0] == 600 * CAPACITY
    assert run.joined[0] == pytest.approx((controller.first_s - 0.8 - 600 * 0.02) * CAPACITY / times, rel=0.1)
    assert run.latency_s[1:].max() <= 30


def test_a_first_backlog_that_takes_far_longer_than_was_thought_is_the_only_one():
    world = World(lambda _: 2.0, backlog_s=600.0)
    run, _ = simulate(world, prior=expected(world, 0.1))
    assert run.seconds[0] > 60
    assert run.latency_s[2:].max() <= 30
    assert run.after(SETTLED_S + run.seconds[0]).joined_per_s >= 0.85 * CAPACITY


@pytest.mark.parametrize("times", [0.2, 1.0, 5.0])
def test_the_cost_of_rows_is_remembered_after_quiet_hours(times):
    def rate(second):
        return 1.5 if second < 60 else 0.001 if second < 200 else 300.0 if second < 201 else 0.1

    world = World(rate)
    run, controller = simulate(world, 260, prior=expected(world, times))
    burst = run.after(200)
    assert burst.rows.max() > 60 * CAPACITY
    assert burst.latency_s.max() <= 1.2 * 30, "what is expected still counts for a little"
    assert burst.joined.max() >= 0.7 * controller.batch_s * CAPACITY


def test_batches_in_which_rows_take_hardly_any_time_measure_nothing():
    few = ServiceTimes([Observation(0.8, 10, 0), Observation(0.9, 40, 0), Observation(0.7, 0, 0)] * 5)
    assert not few.measured
    once = ServiceTimes(MEASURED[-1:])
    assert not once.measured, "the first batch of a process starts workers"
    assert ServiceTimes(MEASURED).measured


def test_a_large_batch_is_remembered_until_another_is_as_large():
    large, larger = Observation(11.0, 10**6, 0), Observation(9.0, 8 * 10**5, 0)
    times = ServiceTimes([large])
    for _ in range(40):
        times.add(Observation(1.0, 100, 0))
    assert len(times.seen) == 16
    assert times.seen[0] == large
    assert times.model.seconds(10**6) == pytest.approx(11.0, rel=0.3)
    times.add(larger)
    for _ in range(40):
        times.add(Observation(1.0, 100, 0))
    assert times.seen[0] == larger
    assert large not in times.seen


SIZES = st.tuples(st.integers(1, 10**7), st.integers(0, 10**7))


@given(st.lists(SIZES, min_size=3, max_size=30), st.floats(0.1, 5), st.floats(2e-7, 5e-5), st.floats(1e-8, 5e-6))
@settings(deadline=None, max_examples=50, derandomize=True)  # a fit is near, not exact: the same examples each time
def test_what_was_measured_twice_is_predicted(sizes, fixed_s, joined_s, shed_s):
    truth = ServiceModel(fixed_s, joined_s, shed_s)
    last = sizes[-1]
    times = ServiceTimes([Observation(truth.seconds(*size), *size) for size in [*sizes, last]])
    model = times.model
    assert min(model.fixed_s, model.joined_s, model.shed_s) >= 0
    assert model.seconds(*last) == pytest.approx(truth.seconds(*last), rel=0.25)


def test_impossible_times_are_ignored():
    times = ServiceTimes()
    before = times.model
    times.add(Observation(0.0, 100, 0))
    times.add(Observation(-5.0, 100, 0))
    assert times.model == before
    assert times.seen == []


def test_spare_time_is_there_when_batches_are_short():
    now = 0.0

    def clock():
        return now

    controller = OverloadController(
        30.0, 1.0, clock, [Observation(0.5 + n * 1e-5, n, 0) for n in (10**5, 10**4, 10**5)]
    )
    assert controller.spare_rows() > 100_000
    controller.begin()
    now = controller.batch_s + 1
    controller.end(joined=10**6)
    assert controller.spare_rows() == 0
