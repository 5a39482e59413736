"""With enough memory, the operator gives the batch join by key and time, for any cuts and interleaving."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.windows import Tuples, WindowJoin
from tests.windows.streams import SCHEMAS, Stream, batch_of, cuts, drive, pairs_of, streams

TIME_PREDICATE = """(
    (l.t >= r.t AND ({right} IS NULL OR l.t - r.t < {right}))
    OR (r.t >= l.t AND ({left} IS NULL OR r.t - l.t < {left}))
)"""
DUCKDB = duckdb.connect()


def batch_join(left: Stream, right: Stream, condition: str, tables: tuple[pa.Table, ...] = ()) -> Counter[Any]:
    """Positions of the pairs that DuckDB finds."""
    tables = tables or tuple(pa.Table.from_batches([batch_of(s, i)]) for i, s in enumerate((left, right)))
    DUCKDB.register("l", tables[0])
    DUCKDB.register("r", tables[1])
    return Counter(DUCKDB.sql(f"SELECT l.l, r.r FROM l JOIN r ON {condition}").fetchall())


def predicate(left: int | None, right: int | None) -> str:
    return TIME_PREDICATE.format(left="NULL" if left is None else left, right="NULL" if right is None else right)


@given(data=st.data(), left=streams(nulls=True), right=streams(nulls=True))
@settings(max_examples=80, deadline=None)
def test_windows_of_time(data: st.DataObject, left: Stream, right: Stream) -> None:
    lengths = data.draw(st.tuples(*[st.none() | st.integers(1, 12)] * 2))
    join = WindowJoin(
        *SCHEMAS,
        on="k",
        time="t",
        window={"left": lengths[0], "right": lengths[1]},
        batch_rows=data.draw(st.integers(1, 9)),
    )
    results = list(drive(join, left, right, data.draw(cuts(left, right))))
    assert pairs_of(results) == batch_join(left, right, f"l.k = r.k AND {predicate(*lengths)}")
    assert join.stats.results == sum(batch.num_rows for batch in results)


@given(data=st.data(), left=streams(nulls=True), right=streams(nulls=True))
@settings(max_examples=60, deadline=None)
def test_windows_of_tuples(data: st.DataObject, left: Stream, right: Stream) -> None:
    """A pair is there if both are among the latest tuples of their streams when the later one arrives."""
    lengths = data.draw(st.tuples(*[st.integers(1, 12)] * 2))
    join = WindowJoin(*SCHEMAS, on="k", time="t", window={"left": Tuples(lengths[0]), "right": Tuples(lengths[1])})
    results = pairs_of(list(drive(join, left, right, data.draw(cuts(left, right)))))
    # Positions count from 0, so the tuples that came up to an instant less the position are those from it on.
    latest = """(SELECT count(*) FROM {s} AS x WHERE x.t <= greatest(l.t, r.t)) - {s}.{s} <= {length}"""
    both = " AND ".join(latest.format(s=s, length=n) for s, n in zip("lr", lengths, strict=True))
    DUCKDB.register("l", pa.Table.from_batches([batch_of(left, 0)]))
    DUCKDB.register("r", pa.Table.from_batches([batch_of(right, 1)]))
    assert results == Counter(DUCKDB.sql(f"SELECT l.l, r.r FROM l, r WHERE l.k = r.k AND {both}").fetchall())


@given(data=st.data(), left=streams(rows=15), right=streams(rows=15))
@settings(max_examples=40, deadline=None)
def test_positions_are_times_where_there_are_none(data: st.DataObject, left: Stream, right: Stream) -> None:
    window = data.draw(st.integers(1, 8))
    join = WindowJoin(*SCHEMAS, on="k", window=window)
    results = pairs_of(list(drive(join, left, right, data.draw(cuts(left, right)))))
    assert results == batch_join(left, right, f"l.k = r.k AND abs(l.l - r.r) < {window}")


@given(data=st.data(), left=streams(), right=streams())
@settings(max_examples=60, deadline=None)
def test_disorder_within_the_lateness_changes_nothing(data: st.DataObject, left: Stream, right: Stream) -> None:
    """Rows late by no more than the lateness are joined; later ones are returned and counted."""
    lateness = data.draw(st.integers(0, 6))
    mixed = [data.draw(st.permutations(stream)) for stream in (left, right)]
    on_time: list[list[bool]] = []
    for stream in mixed:
        greatest, flags = -1000, []
        for time, _ in stream:
            flags.append(time >= greatest - lateness)
            greatest = max(greatest, time)
        on_time.append(flags)
    join = WindowJoin(*SCHEMAS, on="k", time="t", window=5, lateness=lateness)
    results = pairs_of(list(drive(join, mixed[0], mixed[1], data.draw(cuts(mixed[0], mixed[1])))))
    tables = tuple(
        pa.Table.from_batches([batch_of(stream, side)]).filter(pa.array(on_time[side], pa.bool_()))
        for side, stream in enumerate(mixed)
    )
    assert results == batch_join([], [], f"l.k = r.k AND {predicate(5, 5)}", tables)
    for side, name, stats in ((0, "left", join.stats.left), (1, "right", join.stats.right)):
        late = join.take_late(name)  # type: ignore[arg-type]
        handed = [row for batch in late for row in batch.column("lr"[side]).to_pylist()]
        assert handed == [i for i, fine in enumerate(on_time[side]) if not fine]
        assert stats.late == len(handed)
        assert join.take_late(name) == []  # type: ignore[arg-type]
        assert stats.rows_in == stats.late + stats.null_keys + stats.expired + stats.in_memory


@given(left=streams(rows=10), right=streams(rows=10))
@settings(max_examples=15, deadline=None)
def test_results_come_as_soon_as_their_instant_is_complete(left: Stream, right: Stream) -> None:
    join = WindowJoin(*SCHEMAS, on="k", time="t", window=4)
    got: Counter[Any] = Counter()
    for i in range(max(len(left), len(right))):
        for side, stream in enumerate((left, right)):
            if i < len(stream):
                got += pairs_of(list(join.push(("left", "right")[side], batch_of(stream[i : i + 1], side, i))))  # type: ignore[arg-type]
        reached = [max((t for t, _ in s[: i + 1]), default=None) for s in (left, right)]
        if None not in reached:
            complete = min(t for t in reached if t is not None)
            seen = (left[: i + 1], right[: i + 1])
            condition = f"l.k = r.k AND {predicate(4, 4)} AND greatest(l.t, r.t) < {complete}"
            assert got == batch_join(*seen, condition)
