"""A processor too slow for its streams: tuples served, tuples dropped from the queue, and nothing lost for good."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.windows import Expected, LearntProbabilities, MemoryArchive, Prob, SlowCpu, Tuples, WindowJoin, repair
from semistream.windows.streams.event_time import SIDES
from tests.windows import naive
from tests.windows.join.test_exact import batch_join, predicate
from tests.windows.join.test_policies import WEIGHING, of_streams
from tests.windows.streams import SCHEMAS, Stream, batch_of, cuts, drive, pairs_of, streams, whole

SERVICES = st.sampled_from([Fraction(1, 3), Fraction(1, 2), 1, Fraction(3, 2), 2, 5])


class NaiveQueue:
    """WINDOW 2.3, instant by instant: arrive, serve in the order of arrival, join one by one, drop the excess."""

    def __init__(self, join: naive.Naive, cpu: SlowCpu) -> None:
        self.join, self.cpu = join, cpu
        self.queue: list[naive.Tuple] = []
        self.dropped: set[tuple[int, int]] = set()
        self.credit = Fraction(0)

    def run(self, left: Stream, right: Stream) -> NaiveQueue:
        times = [time for time, _ in [*left, *right]]
        seen = [0, 0]
        for now in range(min(times, default=0), max(times, default=-1) + 1):
            for side, stream in enumerate((left, right)):
                for key in [key for time, key in stream if time == now]:
                    self.queue.append(naive.Tuple(side, seen[side], now, key, 0))
                    seen[side] += 1
            self.serve(self.cpu.rate)
            while len(self.queue) > self.cpu.queue:
                self.drop(now)
        self.serve(Fraction(10**9))
        return self

    def serve(self, more: Fraction) -> None:
        self.credit += more
        while self.credit >= 1 and self.queue:
            self.credit -= 1
            self.one(self.queue.pop(0))
        if not self.queue:
            self.credit = min(self.credit, Fraction(1))

    def one(self, tuple_: naive.Tuple) -> None:
        join = self.join
        join.now = tuple_.time
        join.expire(tuple_.time)
        one = naive.Tuple(tuple_.side, tuple_.position, tuple_.time, tuple_.key, join.arrivals)
        join.arrivals += 1
        for other in join.memory:
            if other.side != one.side and other.key == one.key:
                join.results[(one.position, other.position) if one.side == 0 else (other.position, one.position)] += 1
        join.enter(one)
        join.fit()

    def drop(self, now: int) -> None:
        def partners(one: naive.Tuple) -> float:
            here = [other for other in self.join.memory if other.side != one.side and other.key == one.key]
            met = sum(self.join.in_window(other, one.time) for other in here)
            window = self.join.windows[one.side].length
            assert window is not None
            life = max(one.time + window - 1 - now, 0)
            return met + naive.prob(self.join, one) * life

        if self.cpu.model == "integrated":
            dropped = min(self.queue, key=partners)
        elif self.cpu.drop == "newest":
            dropped = self.queue[-1]
        elif self.cpu.drop == "random":
            dropped = self.queue[self.join.draw(len(self.queue))]
        else:
            dropped = min(self.queue, key=lambda one: naive.prob(self.join, one) if self.cpu.drop == "prob" else 0)
        self.queue.remove(dropped)
        self.dropped.add((dropped.side, dropped.position))


def dropped(archive: MemoryArchive) -> set[tuple[int, int]]:
    gone = set()
    for side, column in enumerate("lr"):
        table = archive.read(side, SCHEMAS[side]).to_pylist()
        gone |= {(side, row[column]) for row in table if row["semistream until"] == -1}
    return gone


@pytest.mark.slow
@pytest.mark.parametrize("way", ["prob", "random", "oldest", "newest", "integrated"])
@given(data=st.data(), left=streams(rows=40, step=1), right=streams(rows=40, step=1))
@settings(max_examples=40, deadline=None)
def test_who_is_served_and_who_is_dropped(way: Any, data: st.DataObject, left: Stream, right: Stream) -> None:
    options: Any = {"model": "integrated"} if way == "integrated" else {"drop": way}
    cpu = SlowCpu(service=data.draw(SERVICES), queue=data.draw(st.integers(0, 6)), **options)
    policy, worth = WEIGHING[data.draw(st.sampled_from(["prob", "life"]))]
    naive.whole_stream_frequencies(left, right)
    archive, parts = MemoryArchive(), data.draw(st.integers(1, 5))
    options = {"window": 7, "memory": 2 * parts, "policy": policy(of_streams(left, right))}
    join = WindowJoin(*SCHEMAS, on="k", time="t", cpu=cpu, archive=archive, **options)
    results = pairs_of(list(drive(join, left, right, data.draw(cuts(left, right)))))
    model = NaiveQueue(naive.Naive((naive.Window(7), naive.Window(7)), (parts, parts), worth), cpu).run(left, right)
    assert dropped(archive) == model.dropped
    assert results == model.join.results
    for side, stats in enumerate((join.stats.left, join.stats.right)):
        assert stats.dropped == sum(key[0] == side for key in model.dropped)
        assert stats.evicted == sum(key[0] == side for key in model.join.evicted)
        assert stats.rows_in == stats.in_memory + stats.expired + stats.evicted + stats.dropped
    repaired = pairs_of(list(repair(archive, *SCHEMAS, on="k")))
    assert results + repaired == batch_join(left, right, f"l.k = r.k AND {predicate(7, 7)}")


@given(data=st.data(), left=streams(rows=40, step=1, nulls=True), right=streams(rows=40, step=1, nulls=True))
@settings(max_examples=40, deadline=None)
def test_learnt_statistics_and_restored_queues(data: st.DataObject, left: Stream, right: Stream) -> None:
    """However streams are cut, saved and restored, the same tuples are dropped, and all can be made up for."""
    learnt = LearntProbabilities(half_life=30, refresh=9, width=64)
    policy = data.draw(st.sampled_from([Prob(learnt), Expected(learnt)]))
    model: Any = data.draw(st.sampled_from(["modular", "integrated"]))
    options: Any = {
        "on": "k", "time": "t", "window": 6, "memory": 14, "policy": policy,
        "cpu": SlowCpu(data.draw(SERVICES), data.draw(st.integers(0, 6)), model=model),
    }  # fmt: skip
    archives = [MemoryArchive(), MemoryArchive()]
    plain = WindowJoin(*SCHEMAS, archive=archives[0], **options)
    wanted = pairs_of(list(drive(plain, left, right, whole(left, right))))
    join = WindowJoin(*SCHEMAS, archive=archives[1], **options)
    found: list[pa.RecordBatch] = []
    for side, begin, end in data.draw(cuts(left, right)):
        found += join.push(SIDES[side], batch_of((left, right)[side][begin:end], side, begin))
        if data.draw(st.booleans()):
            state, join = join.state(), WindowJoin(*SCHEMAS, archive=archives[1], **options)
            join.restore(state)
    found += join.finish()
    assert pairs_of(found) == wanted
    assert dropped(archives[0]) == dropped(archives[1])
    assert join.stats == plain.stats
    exact = batch_join(left, right, f"l.k = r.k AND {predicate(6, 6)}")
    for archive in archives:
        assert wanted + pairs_of(list(repair(archive, *SCHEMAS, on="k"))) == exact


def test_a_fast_processor_drops_nothing() -> None:
    stream = [(t, t % 4) for t in range(100)]
    cpu = SlowCpu(service=2, queue=2)
    join = WindowJoin(*SCHEMAS, on="k", time="t", window=9, cpu=cpu)
    results = pairs_of(list(drive(join, stream, stream, whole(stream, stream))))
    assert results == batch_join(stream, stream, f"l.k = r.k AND {predicate(9, 9)}")
    assert join.stats.left.dropped == join.stats.right.dropped == 0


def test_an_integrated_queue_keeps_what_the_memory_can_use() -> None:
    """On skewed streams at half the speed it loses fewer results than the modular queue, and both than chance."""
    generator = np.random.default_rng(3)
    left, right = ([(t, int(k)) for t, k in enumerate(generator.zipf(1.4, 3000) % 50)] for _ in range(2))
    counts = {}
    for name, cpu in (
        ("integrated", SlowCpu(1, 40, model="integrated")),
        ("modular", SlowCpu(1, 40)),
        ("random", SlowCpu(1, 40, drop="random")),
    ):
        policy = Prob(of_streams(left, right))
        join = WindowJoin(*SCHEMAS, on="k", time="t", window=200, memory=200, policy=policy, cpu=cpu)
        counts[name] = sum(pairs_of(list(drive(join, left, right, whole(left, right)))).values())
    assert counts["integrated"] > counts["random"]
    assert counts["modular"] > counts["random"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"service": 0, "queue": 3}, "service is 0"),
        ({"service": 1e-9, "queue": 3}, "service is 1e-09"),
        ({"service": 1, "queue": -1}, "queue is -1"),
        ({"service": 1, "queue": 3, "model": "loose"}, "model is 'loose'"),
        ({"service": 1, "queue": 3, "drop": "all"}, "drop is 'all'"),
    ],
)
def test_processors_that_cannot_be(options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SlowCpu(**options)


def test_what_a_queue_cannot_be_combined_with() -> None:
    with pytest.raises(InvalidArgument, match="give windows of time"):
        WindowJoin(*SCHEMAS, on="k", time="t", window=Tuples(3), cpu=SlowCpu(1, 3))
    with pytest.raises(InvalidArgument, match="policy 'random' has no probabilities"):
        WindowJoin(*SCHEMAS, on="k", time="t", window=3, policy="random", cpu=SlowCpu(1, 3))
