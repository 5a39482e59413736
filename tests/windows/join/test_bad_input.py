"""Bad input is refused before any row is taken, with the next step; misbehaving streams lose nothing."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, JoinFailed, JoinInProgress, KeyTypeError
from semistream.windows import (
    ComputedProbabilities,
    GivenProbabilities,
    LearntProbabilities,
    Life,
    Prob,
    Random,
    Tuples,
    WindowJoin,
)
from tests.windows.streams import SCHEMAS, batch_of, pairs_of


def join(**options: Any) -> WindowJoin:
    return WindowJoin(*SCHEMAS, **{"on": "k", "time": "t", "window": 5, **options})


@pytest.mark.parametrize("window", [0, -3, 2.5, True, "5 minutes", Ellipsis, {"left": 0, "right": 1}, {"left": 1}])
def test_windows_that_join_nothing_or_cannot_be_read(window: Any) -> None:
    with pytest.raises(InvalidArgument, match="window is"):
        join(window=window)


def test_windows_and_lateness_of_timestamps_are_durations() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("ms", "UTC"))])
    for window in (5, "5 parsecs", timedelta(microseconds=1), timedelta(0)):
        with pytest.raises(InvalidArgument, match="window is"):
            WindowJoin(schema, schema, on="k", time="t", window=window)  # type: ignore[arg-type]
    made = WindowJoin(schema, schema, on="k", time="t", window="1.5 seconds", lateness=timedelta(seconds=1))
    rows = [pa.record_batch({"k": [1], "t": pa.array([t], pa.timestamp("ms", "UTC"))}) for t in (0, 1499, 1500)]
    found = list(made.push_left(rows[0]))
    for row in rows[1:]:
        found += made.push_right(row)
    with pytest.raises(InvalidArgument, match=r"a time is 7; these streams have times of type timestamp\[ms"):
        made.advance(7)
    found += made.advance(datetime(1970, 1, 1, 0, 0, 1))
    assert sum(b.num_rows for b in [*found, *made.finish()]) == 1
    days = pa.schema([("k", pa.int64()), ("t", pa.date32())])
    with pytest.raises(InvalidArgument, match=r"which is 0.5 units of date32"):
        WindowJoin(days, days, on="k", time="t", window="12 hours")
    week = WindowJoin(days, days, on="k", time="t", window="1 week")
    batch = [pa.record_batch({"k": [1], "t": [date(2024, 1, d)]}) for d in (1, 7, 8)]
    found = [*week.push_left(batch[0]), *week.push_right(batch[1]), *week.push_right(batch[2]), *week.finish()]
    assert sum(b.num_rows for b in found) == 1


@pytest.mark.parametrize("memory", [0, -1, 1, 1.5, True, "0MB", "300B", "much", {"left": 0, "right": 5}])
def test_memory_that_holds_nothing(memory: Any) -> None:
    with pytest.raises(BudgetError, match="memory"):
        join(memory=memory, policy=Random())


def test_the_sketch_is_charged_to_the_memory() -> None:
    with pytest.raises(BudgetError, match="at least 2 tuples and 103 more for the sketch"):
        join(memory=104, policy=Prob(LearntProbabilities(width=1024)))
    made = join(memory=105, policy=Prob(LearntProbabilities(width=1024)))
    stream = [(t, 0) for t in range(4)]
    list(made.push_left(batch_of(stream, 0)))
    list(made.finish())
    assert made.stats.left.in_memory == 1
    with pytest.raises(BudgetError) as refused:
        join(memory="1kB")
    assert refused.value.least_bytes is not None
    join(memory=f"{refused.value.least_bytes}")


def test_names_that_do_not_exist() -> None:
    with pytest.raises(ColumnNotFound, match="the left stream has no column 'when'"):
        join(time="when")
    with pytest.raises(InvalidArgument, match="policy is 'best'"):
        join(policy="best")
    with pytest.raises(InvalidArgument, match="allocation is 'free'"):
        join(allocation="free")
    with pytest.raises(InvalidArgument, match="side is 'both'"):
        join().push("both", batch_of([], 0))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="weight_column is 'w'"):
        join(weight_column="w")
    with pytest.raises(InvalidArgument, match="width is 100; give a power of two"):
        LearntProbabilities(width=100)
    with pytest.raises(ColumnNotFound, match="'frequency'"):
        GivenProbabilities(pa.table({"k": [1]}), pa.table({"k": [1]}))
    with pytest.raises(InvalidArgument, match="numbers below 0"):
        GivenProbabilities(*[pa.table({"k": [1], "frequency": [-1.0]})] * 2)
    for policy in ("life", Life()):
        with pytest.raises(InvalidArgument, match="the right window is unbounded"):
            join(policy=policy, window={"left": 3, "right": None})


def test_times_that_cannot_be() -> None:
    strings = pa.schema([("k", pa.int64()), ("t", pa.string())])
    with pytest.raises(KeyTypeError, match="time columns 't' and 't' have the types"):
        WindowJoin(strings, strings, on="k", time="t", window=3)
    naive, zoned = (pa.schema([("k", pa.int64()), ("t", pa.timestamp("s", zone))]) for zone in (None, "UTC"))
    with pytest.raises(KeyTypeError, match="time columns"):
        WindowJoin(naive, zoned, on="k", time="t", window="3 s")
    made = join()
    for wrong, message in ((None, "is null in 1 of 2 rows"), (2**62 + 1, "is out of range")):
        rows = pa.RecordBatch.from_arrays(
            [pa.array(c, pa.int64()) for c in ([1, 1], [0, wrong], [0, 1])], schema=SCHEMAS[0]
        )
        with pytest.raises(InvalidArgument, match=message):
            made.push_left(rows)
    assert made.stats.left.rows_in == 0
    assert list(made.push_left(batch_of([(0, 1)], 0))) == []


def test_other_columns_than_declared_are_refused() -> None:
    made = join()
    with pytest.raises(InvalidArgument, match="a batch of the left stream has the columns"):
        made.push_left(batch_of([(0, 1)], 1))
    list(made.finish())
    with pytest.raises(InvalidArgument, match="has ended the streams"):
        made.push_left(batch_of([(0, 1)], 0))


def test_results_must_be_consumed_and_a_failure_is_remembered() -> None:
    made = join()
    list(made.push_left(batch_of([(0, 1), (9, 1)], 0)))
    results = made.push_right(batch_of([(0, 1), (9, 1)], 1))
    for call in (made.state, made.finish, lambda: made.set_memory(3), lambda: made.set_window(3)):
        with pytest.raises(JoinInProgress, match=r"the results of push\(\)"):
            call()
    assert len(list(results)) == 1
    failing = join(policy=Prob(ComputedProbabilities(lambda side, batch: [float("nan")] * batch.num_rows)))
    list(failing.push_left(batch_of([(0, 1)], 0)))
    with pytest.raises(InvalidArgument, match="and contain NaN"):
        list(failing.finish())
    with pytest.raises(JoinFailed, match="Restore the last state"):
        failing.state()


def test_a_silent_stream_holds_the_other_until_it_is_told() -> None:
    made = join(max_waiting=10)
    for i in range(5):
        assert list(made.push_left(batch_of([(2 * i, 1), (2 * i + 1, 1)], 0, 2 * i))) == []
    with pytest.raises(InvalidArgument, match="the right stream is silent") as refused:
        made.push_left(batch_of([(10, 1)], 0, 10))
    assert "advance(time, side='right')" in str(refused.value)
    assert made.stats.left.waiting == made.stats.left.rows_in == 10
    list(made.advance(8, side="right"))
    assert (made.stats.left.waiting, made.stats.left.expired) == (2, 4)
    assert list(made.push_right(batch_of([(7, 1)], 1))) == []  # it had been said that nothing comes before 8
    assert [batch.num_rows for batch in made.take_late("right")] == [1]
    found = [*made.push_right(batch_of([(9, 1)], 1, 1)), *made.push_left(batch_of([(10, 1)], 0, 10)), *made.finish()]
    assert pairs_of(found) == {(5, 1): 1, (6, 1): 1, (7, 1): 1, (8, 1): 1, (9, 1): 1, (10, 1): 1}


def test_a_stream_without_times_leaves_out_instants() -> None:
    made = join(time=None, window=3)
    left = [batch_of([(0, 1)] * n, 0, first) for first, n in ((0, 8), (8, 2))]
    assert list(made.push_left(left[0])) == []
    assert list(made.advance(6, side="right")) == []
    assert made.stats.left.waiting == 2
    found = [*made.push_right(batch_of([(0, 1)], 1)), *made.push_left(left[1]), *made.finish()]
    assert pairs_of(found) == {(position, 0): 1 for position in range(4, 9)}  # of instants 4 to 8, it being at 6


def test_empty_streams_and_batches() -> None:
    made = join()
    assert [*made.push_left(batch_of([], 0)), *made.push_right(batch_of([], 1)), *made.finish()] == []
    assert made.stats.results == 0
    tuples = join(window=Tuples(3), memory=4, policy="random")
    assert [*tuples.push_left(batch_of([(0, None)] * 9, 0)), *tuples.finish()] == []
    assert (tuples.stats.left.null_keys, tuples.stats.left.rows_in) == (9, 9)


@pytest.mark.parametrize("length", [0, 40, 2000])
@pytest.mark.parametrize("policy", ["prob", "random"])
def test_memory_in_bytes_holds(length: int, policy: str) -> None:
    """The held bytes stay below the limit, and near it, for long and short rows."""
    schema = pa.schema([("k", pa.int64()), ("text", pa.string())])
    rows, limit = 4000, 1_000_000
    made = WindowJoin(schema, schema, on="k", window=rows, memory=f"{limit}B", policy=policy)
    keys = np.random.default_rng(1).integers(0, 2000, 2 * rows)
    most = 0
    for i in range(0, rows, 50):
        for side in (0, 1):
            part = keys[side * rows + i : side * rows + i + 50]
            batch = pa.record_batch(
                [pa.array(part), pa.array(["x" * (length + j % 7) for j in range(50)])], schema=schema
            )
            list(made.push(("left", "right")[side], batch))  # type: ignore[arg-type]
            most = max(most, made.nbytes)
    assert most <= limit
    kept = made.stats.left.in_memory + made.stats.right.in_memory
    assert kept > 0.9 * (limit - 250_000) / (360 + 3 * (9 + 5 + length + 6))
