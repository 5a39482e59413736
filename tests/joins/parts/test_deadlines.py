"""Deadlines (SSIJ IV-F) on clocks that tests move: work starts in time, and lateness is measured where it cannot."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import MeshJoin, Relation, SemiStreamJoin
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument
from semistream.joins.parts.deadlines import DEADLINE_COLUMN, DeadlineRule, Deadlines, DrainCost
from semistream.relation import DiskCosts, SimulatedDisk
from tests.joins.cases import Case, cases
from tests.joins.clocks import FakeClock
from tests.joins.conformance import checks
from tests.joins.conformance.operators import Maker, every_operator, every_operator_with, every_waiting_operator
from tests.oracle import multiset

KEYS = 1000


class DiskClock(FakeClock):
    """Moves by hand, and by the time that a simulated disk takes."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__()
        self._disk = disk

    def __call__(self) -> float:
        return self.now_s + self._disk.now_s

    def wait_until(self, time_s: float) -> None:
        self.now_s += max(time_s - self(), 0.0)


class JumpingClock(FakeClock):
    """Moves by one of ``jumps_s`` whenever it is read, forwards or backwards."""

    def __init__(self, jumps_s: list[float]) -> None:
        super().__init__()
        self._jumps_s = jumps_s
        self._reads = 0

    def __call__(self) -> float:
        self.now_s += self._jumps_s[self._reads % len(self._jumps_s)]
        self._reads += 1
        return self.now_s


def stream_case(batches: list[pa.RecordBatch], how: str = "left") -> Case:
    relation = pa.table({"k": np.arange(0, 2 * KEYS, 2), "v": np.arange(KEYS)})
    return Case(relation, ("k",), tuple(batches), batches[0].schema, {"s": "k"}, how, 1024)


def random_batches(count: int, rows: int, spread: int = 2 * KEYS, **columns: Any) -> list[pa.RecordBatch]:
    draw = np.random.default_rng(count)
    first = iter(range(0, count * rows, rows))
    return [
        pa.record_batch({"s": draw.integers(0, spread, rows), "number": np.arange(i, i + rows), **columns})
        for i in first
    ]


def drive(
    operator: SemiStreamJoin, clock: DiskClock, batches: tuple[pa.RecordBatch, ...], gap_s: float
) -> tuple[pa.Table, int]:
    """Push a batch every ``gap_s`` and poll whenever rows are due, as a careful user does; never step or flush.

    Return the results, and the most tuples that waited between two calls.
    """
    results: list[pa.RecordBatch] = []
    most_waiting = 0
    arrival_s = clock()
    for batch in batches:
        arrival_s += gap_s
        results += _polled(operator, clock, arrival_s)
        clock.wait_until(arrival_s)
        results += operator.push(batch)
        most_waiting = max(most_waiting, operator.stats.rows_waiting)
    results += _polled(operator, clock, math.inf)
    return pa.Table.from_batches(results, operator.schema), most_waiting


def _polled(operator: SemiStreamJoin, clock: DiskClock, until_s: float) -> Iterator[pa.RecordBatch]:
    while operator.stats.rows_waiting and operator.due_s <= until_s:
        clock.wait_until(operator.due_s)
        yield from operator.poll()


@pytest.mark.slow
@every_waiting_operator
@pytest.mark.parametrize("spread", [2 * KEYS, 100])
def test_no_tuple_is_late_if_the_rate_allows(maker: Maker, spread: int) -> None:
    case = stream_case(random_batches(60, 20, spread))
    with case.built() as relation:
        disk = SimulatedDisk(seek_s=0.01, transfer_s=0.001)
        clock = DiskClock(disk)
        deadline_s = 1.1 * relation.num_pages * disk.costs.request_s(1024, 1)
        with maker.make(relation, case, "4MB", disk=disk, clock=clock, deadline_s=deadline_s) as operator:
            results, most_waiting = drive(operator, clock, case.batches, gap_s=deadline_s / 15)
        assert multiset(results) == case.expected_rows
        assert (operator.stats.late, operator.stats.worst_lateness_s) == (0, 0.0)
        assert operator.stats.rows_waiting == 0
        assert maker.options.keys() & {"rows_per_step", "input_threshold", "seed"} or most_waiting > 20


@pytest.mark.slow
@every_operator
def test_deadlines_of_single_rows_by_a_column(maker: Maker) -> None:
    waits = pa.array([0.5, None, 20.0, float("nan"), math.inf] * 4)
    case = stream_case(random_batches(30, 20, within_s=waits))
    with case.built() as relation:
        disk = SimulatedDisk(seek_s=1e-4, transfer_s=1e-5)
        clock = DiskClock(disk)
        with maker.make(relation, case, "4MB", disk=disk, clock=clock, deadline_s="within_s") as operator:
            assert operator.due_s == math.inf
            results, _ = drive(operator, clock, case.batches, gap_s=0.05)
        assert operator.schema.names == ["s", "number", "within_s", "v"]
        assert multiset(results) == case.expected_rows
        assert operator.stats.late == 0


@every_waiting_operator
def test_rows_without_a_deadline_wait_for_ever(maker: Maker) -> None:
    case = stream_case(random_batches(1, 20, within_s=pa.nulls(20, pa.int32())))
    with case.built() as relation:
        clock = FakeClock()
        with maker.make(relation, case, "4MB", clock=clock, deadline_s="within_s") as operator:
            list(operator.push(case.batches[0]))
            clock.now_s = 1e12
            assert operator.due_s == math.inf
            assert list(operator.poll()) == []
            assert operator.stats.rows_waiting > 0
            list(operator.flush())
            assert operator.stats.late == 0


@every_waiting_operator
def test_poll_does_nothing_before_it_is_due_and_drains_after(maker: Maker) -> None:
    case = stream_case(random_batches(1, 50))
    with case.built() as relation:
        disk = SimulatedDisk(seek_s=1e-4, transfer_s=1e-5)
        clock = DiskClock(disk)
        with maker.make(relation, case, "4MB", disk=disk, clock=clock, deadline_s=7) as operator:
            assert operator.due_s == math.inf
            assert list(operator.poll()) == []
            results = list(operator.push(case.batches[0]))
            steps, pages, due_s = operator.stats.steps, disk.counts.pages, operator.due_s
            assert 0 < due_s < 7
            clock.wait_until(due_s - 1e-6)
            assert list(operator.poll()) == []
            assert (operator.stats.steps, disk.counts.pages) == (steps, pages)
            clock.wait_until(due_s)
            results += operator.poll()
            assert operator.stats.rows_waiting == 0
            assert operator.stats.late == 0
            assert operator.due_s == math.inf
        assert multiset(pa.Table.from_batches(results, operator.schema)) == case.expected_rows


@every_operator
def test_a_push_drains_what_is_due(maker: Maker) -> None:
    case = stream_case(random_batches(2, 20))
    with case.built() as relation:
        clock = FakeClock()
        with maker.make(relation, case, "4MB", clock=clock, deadline_s=1) as operator:
            list(operator.push(case.batches[0]))
            clock.now_s = 0.9999
            list(operator.push(case.batches[1]))
            assert operator.due_s > 1  # those that may have been pushed since have time
            assert operator.stats.late == 0


@pytest.mark.slow
@every_operator
@pytest.mark.parametrize("ordered", [False, True])
def test_lateness_is_measured_once_for_each_tuple(maker: Maker, ordered: bool) -> None:
    """The disk is far too slow. Each tuple counts once, also if order has its group joined several times."""
    case = stream_case(random_batches(3, 400, spread=300))
    with case.built() as relation:
        disk = SimulatedDisk(seek_s=100, transfer_s=10)
        clock = DiskClock(disk)
        options = {"disk": disk, "clock": clock, "deadline_s": 1.0, "ordered": ordered}
        memory = maker.least_memory(relation, case, **options) + 5000
        with maker.make(relation, case, memory, **options) as operator:
            if operator.name == "nested_loop":
                pytest.skip("it does not read through a disk")
            results, _ = drive(operator, clock, case.batches, gap_s=0)
            late = operator.stats.late
            assert 0 < late <= operator.stats.rows_in
            assert operator.stats.worst_lateness_s > 100
            if not ordered:
                late_before, now_s = late, clock()
                list(operator.push(case.batches[0]))
                assert operator.stats.rows_waiting == 0
                assert operator.stats.late - late_before <= 400
                assert operator.stats.worst_lateness_s >= clock() - now_s - 1 - 1e-6
        assert multiset(results) == case.expected_rows


def test_a_tuple_that_had_to_wait_too_long_is_late_by_the_difference() -> None:
    case = stream_case(random_batches(1, 20))
    with case.built() as relation:
        clock = FakeClock()
        with MeshJoin(relation, case.stream_schema, on=case.on, memory="4MB", clock=clock, deadline_s=1) as operator:
            list(operator.push(case.batches[0]))
            clock.now_s = 3.5
            list(operator.poll())
            assert operator.stats.late == 20
            assert operator.stats.worst_lateness_s == 2.5


@pytest.mark.slow
@every_operator_with(
    examples=12,
    case=cases(),
    jumps_s=st.lists(st.sampled_from([0.0, 1e-3, 1e6, -1e6, -1e-3, 5.0, -5.0]), min_size=1, max_size=7),
    deadline_s=st.sampled_from([0, 0.5, 1e5]),
    ordered=st.booleans(),
    extra=st.sampled_from([0, 2000, 1_000_000]),
)
def test_a_clock_that_jumps_changes_no_result(
    maker: Maker, case: Case, jumps_s: list[float], deadline_s: float, ordered: bool, extra: int
) -> None:
    options = {"deadline_s": deadline_s, "ordered": ordered, "clock": JumpingClock(jumps_s)}
    with case.built() as relation:
        least = maker.least_memory(relation, case, **options)
        results = []
        with maker.make(relation, case, least + extra, **options) as operator:
            for batch in case.batches:
                results += operator.push(batch)
                results += operator.poll()
            results += operator.flush()
            assert operator.stats.late <= operator.stats.rows_in == case.stream.num_rows
            assert operator.stats.peak_bytes <= least + extra
            assert operator.due_s == math.inf
        table = pa.Table.from_batches(results, operator.schema)
        assert table.column_names == [n for n in table.column_names if not n.startswith("_semistream")]
        assert multiset(table) == case.expected_rows
        with pytest.raises(BudgetError, match=str(least)):
            maker.make(relation, case, least - 1, **options)


def test_after_a_jump_of_the_clock_drains_are_not_overestimated_for_ever() -> None:
    cost = DrainCost(DiskCosts(seek_s=1), 1000)
    assert cost.expected_s(10) == 10
    cost.measured(10, 1e6)
    assert cost.expected_s(10) == 1.25e6
    cost.measured(10, -1e6)
    for _ in range(15):
        cost.measured(10, 2.0)
    assert cost.expected_s(10) == 2.5


def test_the_worst_of_similar_drains_counts_by_the_page() -> None:
    cost = DrainCost(DiskCosts(seek_s=1, transfer_s_per_page=1), 1000)
    assert cost.expected_s(0) == 0
    for pages, seconds in ((64, 32.0), (100, 20.0), (127, 12.7), (0, 1.0)):
        cost.measured(pages, seconds)
    assert cost.expected_s(64) == 1.25 * 32
    assert cost.expected_s(128) == 256  # of that size none was seen
    assert cost.expected_s(127) == 1.25 * 127 / 2
    assert cost.expected_s(0) == 0


@settings(deadline=None, max_examples=60)
@given(
    batches=st.lists(
        st.lists(
            st.one_of(st.floats(0, 3), st.floats(-1e9, 1e9), st.sampled_from([math.inf, 1e300, -1e300, 0.0005, 5e15])),
            max_size=40,
        ),
        max_size=6,
    ),
    many=st.booleans(),
    seed=st.integers(0, 9),
)
def test_the_earliest_deadline_is_never_overlooked(batches: list[list[float]], many: bool, seed: int) -> None:
    deadlines = Deadlines(DeadlineRule(None, "d"), FakeClock())
    draw = np.random.default_rng(seed)
    waiting: list[float] = []
    for batch in batches:
        values = np.array(batch, np.float64)
        if many:
            values = np.concatenate([values, draw.uniform(0, 5000, 700)])
        stamped = deadlines.stamp(pa.record_batch({"d": values}), 0.0)
        assert np.array_equal(stamped.column(DEADLINE_COLUMN).to_numpy(), values)
        waiting = draw.permutation(np.concatenate([waiting, values])).tolist()
        gone = draw.integers(0, len(waiting) + 1)
        deadlines.leave(np.array(waiting[:gone], np.float64))
        del waiting[:gone]
        assert deadlines._ticks.size <= 512
        first = max(min(waiting, default=math.inf), -4e15)
        if first < 4e15:
            assert deadlines.earliest_s <= first + 1e-9 * abs(first)
        if not many and first > -1e9 and max(map(abs, waiting), default=0) < 1e10:
            assert first == math.inf or deadlines.earliest_s >= first - 0.001 - 1e-6
    deadlines.leave(np.array(waiting, np.float64))
    assert deadlines.earliest_s == math.inf


def test_deadlines_of_a_batch_by_type() -> None:
    at = dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC)
    for type_, values, expected in [
        (pa.int32(), [3, None, -1], [13.0, math.inf, 9.0]),
        (pa.uint64(), [2**64 - 1, 0, None], [2.0**64 + 10, 10.0, math.inf]),
        (pa.float16(), np.array([0.5, np.nan], np.float16), [10.5, math.inf]),
        (pa.float32(), [0.5, float("inf"), float("-inf")], [10.5, math.inf, math.inf]),
        (pa.float64(), [0.25, None], [10.25, math.inf]),
        *(
            (pa.timestamp(unit, zone), [at, None], [60.0, math.inf])
            for unit in ("s", "ms", "us", "ns")
            for zone in ("UTC", None)
        ),
    ]:
        batch = pa.record_batch([pa.array(values, type_)], ["d"])
        rule = DeadlineRule.of("d", batch.schema, time.time)
        assert rule is not None
        assert rule.deadlines(batch, 10.0).to_pylist() == expected
        assert rule.deadlines(batch.slice(1), 10.0).to_pylist() == expected[1:]
    rule = DeadlineRule.of(2.5, batch.schema, time.monotonic)
    assert rule is not None
    assert rule.deadlines(batch, 10.0).to_pylist() == [12.5, 12.5]


def test_timestamps_are_deadlines_on_the_wall_clock(tmp_path: Any) -> None:
    relation = Relation.build(pa.table({"k": [1, 2]}), tmp_path / "r", key="k")
    clock = FakeClock()
    clock.now_s = 1_700_000_000.0
    due = dt.datetime.fromtimestamp(clock.now_s + 30, dt.UTC)
    batch = pa.record_batch([pa.array([1, 2]), pa.array([due, None], pa.timestamp("us", "UTC"))], ["k", "due"])
    with MeshJoin(relation, batch.schema, on="k", memory="1MB", deadline_s="due", clock=clock) as operator:
        list(operator.push(batch))
        assert clock.now_s + 29 < operator.due_s <= clock.now_s + 30
        clock.now_s += 31
        list(operator.poll())
        assert (operator.stats.late, operator.stats.worst_lateness_s) == (1, 1.0)


def test_rules_that_make_no_sense_are_refused(tmp_path: Any) -> None:
    relation = Relation.build(pa.table({"k": [1]}), tmp_path / "r", key="k")
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("ms")), ("name", pa.string())])
    for deadline_s, error, message in [
        (-1, InvalidArgument, "deadline_s is -1; give 0 or more seconds"),
        (math.nan, InvalidArgument, "deadline_s is nan"),
        ("name", InvalidArgument, "'name' is string; give seconds as a number, or a timestamp"),
        ("at", InvalidArgument, "monotonic does not count from 1970; give clock=time.time"),
        ("att", ColumnNotFound, "Did you mean 'at'"),
    ]:
        with pytest.raises(error, match=message):
            MeshJoin(relation, schema, on="k", memory="1MB", deadline_s=deadline_s)
    own = schema.append(pa.field(DEADLINE_COLUMN, pa.float64()))
    with pytest.raises(InvalidArgument, match="the column name '_semistream_deadline' is reserved for semistream"):
        MeshJoin(relation, own, on="k", memory="1MB", deadline_s=1)


@every_waiting_operator
def test_deadlines_are_kept_over_versions_and_budgets(maker: Maker) -> None:
    case = stream_case(random_batches(4, 20))
    with case.built() as relation:
        clock = FakeClock()
        with maker.make(relation, case, "2MB", clock=clock, deadline_s=10) as operator:
            list(operator.push(case.batches[0]))
            operator.refresh(relation.update(deletes=[0]))
            assert operator.due_s < 10
            list(operator.push(case.batches[1]))
            list(operator.set_memory("3MB"))
            assert operator.due_s == math.inf
            list(operator.push(case.batches[2]))
            assert operator.due_s < 10
            clock.now_s = 12
            list(operator.poll())
            assert 0 < operator.stats.late <= 20
            assert operator.stats.worst_lateness_s == 2.0
            checks.run(operator, case.batches[3:])
