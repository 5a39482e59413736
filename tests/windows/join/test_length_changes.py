"""Changes of windows and memory while a join runs, saved and restored states, and repaired results."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.windows import (
    Expected,
    FileArchive,
    LearntProbabilities,
    MemoryArchive,
    Prob,
    Random,
    Tuples,
    WindowJoin,
    repair,
)
from semistream.windows.streams.event_time import SIDES
from tests.windows import naive
from tests.windows.join.test_exact import batch_join, predicate
from tests.windows.join.test_policies import WEIGHING, of_streams
from tests.windows.streams import SCHEMAS, Stream, batch_of, cuts, drive, evictions, pairs_of, streams, whole

LENGTHS = st.tuples(*[st.integers(1, 10)] * 2)


def push_up_to(join: WindowJoin, instant: int, left: Stream, right: Stream, done: list[int]) -> list[pa.RecordBatch]:
    """Push the tuples before an instant, then advance to it."""
    found: list[pa.RecordBatch] = []
    for side, stream in enumerate((left, right)):
        end = sum(time < instant for time, _ in stream)
        found += join.push(SIDES[side], batch_of(stream[done[side] : end], side, done[side]))
        done[side] = end
    return found + list(join.advance(instant))


@pytest.mark.parametrize("name", WEIGHING)
@given(data=st.data(), left=streams(rows=40), right=streams(rows=40))
@settings(max_examples=40, deadline=None)
def test_windows_and_memory_change(name: str, data: st.DataObject, left: Stream, right: Stream) -> None:
    """WINDOW 6.1.1: from an instant on; what has expired or left before does not come back."""
    policy, worth = WEIGHING[name]
    naive.whole_stream_frequencies(left, right)
    archive, done = MemoryArchive(), [0, 0]
    join = WindowJoin(
        *SCHEMAS, on="k", time="t", window=5, memory=8, policy=policy(of_streams(left, right)), archive=archive
    )
    model = naive.Naive((naive.Window(5), naive.Window(5)), (4, 4), worth)
    found: list[pa.RecordBatch] = []
    changes = sorted(data.draw(st.lists(st.integers(1, 60), max_size=4)))
    instants = sorted({time for time, _ in [*left, *right]})
    for instant in [*changes, 10**6]:
        found += push_up_to(join, instant, left, right, done)
        for now in [t for t in instants if t < instant]:
            model.instant(now, *([key for time, key in stream if time == now] for stream in (left, right)))
        instants = [t for t in instants if t >= instant]
        lengths, tuples = data.draw(LENGTHS), data.draw(st.booleans())
        join.set_window({side: Tuples(n) if tuples else n for side, n in zip(SIDES, lengths, strict=True)})
        model.windows = (naive.Window(lengths[0], tuples), naive.Window(lengths[1], tuples))
        parts = data.draw(st.integers(1, 6))
        join.set_memory(2 * parts)
        model.capacity = (parts, parts)
        if model.arrivals:  # tuples of no use to later instants leave first
            model.expire(model.now + 1)
            model.fit()
    assert pairs_of([*found, *join.finish()]) == model.results
    assert evictions(archive) == model.evicted


@given(data=st.data(), left=streams(rows=40), right=streams(rows=40))
@settings(max_examples=60, deadline=None)
def test_tuples_kept_by_earlier_windows_join_in_the_current_window(
    data: st.DataObject, left: Stream, right: Stream
) -> None:
    """A tuple meets those of an instant if it is in its window, and was kept for every instant from its own on."""
    marks = sorted(data.draw(st.sets(st.integers(1, 60), max_size=4)))
    lengths = [(5, 5), *(data.draw(LENGTHS) for _ in marks)]
    join, done = WindowJoin(*SCHEMAS, on="k", time="t", window=5), [0, 0]
    found: list[pa.RecordBatch] = []
    for mark, now in zip(marks, lengths[1:], strict=True):
        found += push_up_to(join, mark, left, right, done)
        join.set_window(dict(zip(SIDES, now, strict=True)))
    found += [*push_up_to(join, 10**6, left, right, done), *join.finish()]
    instants = sorted({time for time, _ in [*left, *right]})
    length = {instant: lengths[sum(mark <= instant for mark in marks)] for instant in instants}

    def lives(side: int, since: int, now: int) -> bool:
        kept = all(then + 1 - since < length[then][side] for then in instants if since <= then < now)
        return kept and now - since < length[now][side]

    wanted = Counter(
        (i, j)
        for i, (l_time, l_key) in enumerate(left)
        for j, (r_time, r_key) in enumerate(right)
        if l_key == r_key and lives(0, l_time, now := max(l_time, r_time)) and lives(1, r_time, now)
    )
    assert pairs_of(found) == wanted


@pytest.mark.parametrize(
    ("grows_at", "met"),
    [
        pytest.param(5, {4, 5}, id="as the instant comes: those at the border of the window before are gone"),
        pytest.param(4, {3, 4, 5}, id="an instant earlier: all that the window before had then"),
    ],
)
def test_a_window_that_grows_has_whom_the_one_before_kept(grows_at: int, met: set[int]) -> None:
    """At instant 5 a window of 2 has become one of 5. By WINDOW 2.1, the tuple of 3 is in it at 4, and at 5."""
    join, done = WindowJoin(*SCHEMAS, on="k", time="t", window=2), [0, 0]
    left, right = [(time, 1) for time in range(6)], [(5, 1)]
    found = push_up_to(join, grows_at, left, right, done)
    join.set_window(5)
    found += push_up_to(join, 6, left, right, done)
    assert pairs_of(found) == Counter((time, 0) for time in met)


POLICIES = st.sampled_from(["random", "prob", "life", "expected"])


@given(data=st.data(), left=streams(rows=40), right=streams(rows=40), lateness=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_restored_join_goes_on_as_if_nothing_had_happened(
    data: st.DataObject, left: Stream, right: Stream, lateness: int
) -> None:
    name = data.draw(POLICIES)
    learnt = LearntProbabilities(half_life=20, refresh=7, width=64)
    policy: Any = Random(5) if name == "random" else WEIGHING[name][0](learnt)
    options: dict[str, Any] = {
        "on": "k", "time": "t", "window": data.draw(st.sampled_from([6, Tuples(5)])), "lateness": lateness,
        "memory": 14, "policy": policy, "allocation": data.draw(st.sampled_from(["fixed", "variable"])),
    }  # fmt: skip
    mixed = [data.draw(st.permutations(stream)) if lateness else stream for stream in (left, right)]
    pieces = data.draw(cuts(mixed[0], mixed[1]))
    at_once = WindowJoin(*SCHEMAS, **options)
    wanted = [batch.to_pylist() for batch in drive(at_once, mixed[0], mixed[1], pieces)]
    saved = data.draw(st.integers(0, len(pieces)))
    first = WindowJoin(*SCHEMAS, **options)
    got = []
    for side, begin, end in pieces[:saved]:
        got += [b.to_pylist() for b in first.push(SIDES[side], batch_of(mixed[side][begin:end], side, begin))]
    tables = {name: _through_ipc(table) for name, table in first.state().items()}
    second = WindowJoin(*SCHEMAS, **options)
    second.restore(tables)
    assert second.stats == first.stats
    for side, begin, end in pieces[saved:]:
        got += [b.to_pylist() for b in second.push(SIDES[side], batch_of(mixed[side][begin:end], side, begin))]
    got += [b.to_pylist() for b in second.finish()]
    assert [*chain(*got)] == [*chain(*wanted)]
    assert second.stats == at_once.stats
    for side in SIDES:
        late = [[row for batch in join.take_late(side) for row in batch.to_pylist()] for join in (second, at_once)]
        assert late[0] == late[1]


def _through_ipc(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def test_a_state_of_other_parameters_is_refused() -> None:
    one = WindowJoin(*SCHEMAS, on="k", window=3, memory=20, policy=Prob(LearntProbabilities(width=64)))
    other = WindowJoin(*SCHEMAS, on="k", window=3, memory=40, policy=Prob(LearntProbabilities(width=128)))
    with pytest.raises(InvalidArgument, match="256 counters of its sketch, this operator 512"):
        other.restore(one.state())
    third = WindowJoin(*SCHEMAS, on="k", window=3, memory=20, policy=Random())
    with pytest.raises(InvalidArgument, match="another policy"):
        third.restore(one.state())
    fourth = WindowJoin(SCHEMAS[1], SCHEMAS[0], on="k", window=3, memory=20, policy=Prob(LearntProbabilities(width=64)))
    with pytest.raises(InvalidArgument, match=r"the columns \['k', 't', 'l'\] in its left stream"):
        fourth.restore(one.state())
    with pytest.raises(InvalidArgument, match="lacks the tables"):
        one.restore({})
    list(one.push_left(batch_of([(0, 1)], 0)))
    with pytest.raises(InvalidArgument, match="taken tuples already"):
        one.restore(one.state())


@given(data=st.data(), left=streams(rows=40, nulls=True), right=streams(rows=40, nulls=True))
@settings(max_examples=60, deadline=None)
def test_what_came_out_and_what_is_repaired_are_the_exact_result(
    data: st.DataObject, left: Stream, right: Stream
) -> None:
    lengths = data.draw(LENGTHS)
    policy: Any = data.draw(st.sampled_from([Random(3), Prob(LearntProbabilities(width=64)), Expected()]))
    archive = MemoryArchive()
    memory = data.draw(st.integers(10, 16))
    options: Any = {"on": "k", "time": "t", "window": dict(zip(SIDES, lengths, strict=True))}
    join = WindowJoin(*SCHEMAS, memory=memory, policy=policy, archive=archive, **options)
    results = pairs_of(list(drive(join, left, right, data.draw(cuts(left, right)))))
    repaired = list(repair(archive, *SCHEMAS, on="k"))
    assert all(batch.schema == join.schema for batch in repaired)
    exact = batch_join(left, right, f"l.k = r.k AND {predicate(*lengths)}")
    assert results + pairs_of(repaired) == exact


@given(data=st.data(), left=streams(rows=40), right=streams(rows=40))
@settings(max_examples=30, deadline=None)
def test_windows_that_changed_are_repaired_as_they_were(data: st.DataObject, left: Stream, right: Stream) -> None:
    """Also windows of tuples: all tuples are in the archive, so that they count as they did."""
    archive, done = MemoryArchive(), [0, 0]
    plain = WindowJoin(*SCHEMAS, on="k", time="t", window=5)
    join = WindowJoin(*SCHEMAS, on="k", time="t", window=5, memory=4, policy=Random(1), archive=archive)
    found: list[list[pa.RecordBatch]] = [[], []]
    marks = sorted(data.draw(st.lists(st.integers(1, 40), max_size=3)))
    lengths = [(data.draw(LENGTHS), data.draw(st.booleans())) for _ in marks]
    for i, one in enumerate((join, plain)):
        done = [0, 0]
        for instant, (sizes, tuples) in zip(marks, lengths, strict=True):
            found[i] += push_up_to(one, instant, left, right, done)
            one.set_window({side: Tuples(n) if tuples else n for side, n in zip(SIDES, sizes, strict=True)})
        found[i] += [*push_up_to(one, 10**6, left, right, done), *one.finish()]
    assert pairs_of(found[0]) + pairs_of(list(repair(archive, *SCHEMAS, on="k"))) == pairs_of(found[1])


def test_an_archive_in_files(tmp_path: Path) -> None:
    stream = [(t, t % 3) for t in range(200)]
    with FileArchive(tmp_path / "archive") as archive:
        join = WindowJoin(*SCHEMAS, on="k", time="t", window=20, memory=10, policy="random", archive=archive)
        results = pairs_of(list(drive(join, stream, stream, whole(stream, stream))))
    missing = pairs_of(list(repair(FileArchive.open(tmp_path / "archive"), *SCHEMAS, on="k")))
    assert sum(missing.values()) > sum(results.values()) > 0
    assert results + missing == batch_join(stream, stream, f"l.k = r.k AND {predicate(20, 20)}")
    with pytest.raises(InvalidArgument, match="has an archive already"):
        FileArchive(tmp_path / "archive")
    assert Counter(p.name for p in (tmp_path / "archive").iterdir()) == Counter(
        ["left.arrows", "right.arrows", "windows.json"]
    )
    with pytest.raises(InvalidArgument, match="has no archive"):
        FileArchive.open(tmp_path)
