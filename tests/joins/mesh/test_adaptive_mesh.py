"""AdaptiveMeshJoin: MESH Example 3.1, any change of b and w, and how it follows the rate of its stream."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from semistream import AdaptiveMeshJoin, MeshFactors, MeshJoin, ParquetRelation, Relation, SemiStreamJoin, join
from semistream.costs.machine import Machine, OperatorCosts
from semistream.costs.profiles import save_profile
from semistream.errors import InvalidArgument, JoinInProgress
from semistream.joins.loop import Results
from semistream.joins.mesh.cost_model import MeshTuner
from semistream.relation import AnyRelation, DiskCosts, SimulatedDisk
from tests.joins.cases import MEMORY_BACKED, Case, cases
from tests.joins.clocks import FakeClock
from tests.oracle import batch_join, multiset

KEY = 7
STREAM = pa.schema([("s", pa.int64()), ("tuple", pa.int64())])
some = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def partners_on_every_page(folder: Path, pages: int) -> Relation:
    """So many pages of one row each, all with the same key: a stream tuple has one partner on each page."""
    rows = pa.table({"k": [KEY] * pages, "page": range(pages), "filler": [b"\x00" * 3400] * pages})
    relation = Relation.build(rows, folder / "r", key="k", page_bytes=4096)
    assert relation.num_pages == pages
    return relation


def tuples(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([[KEY] * len(numbers), list(numbers)], schema=STREAM)


def meetings(results: Results) -> list[tuple[int, int]]:
    """The pairs (stream tuple, page) in the results."""
    return [pair for b in results for pair in zip(b["tuple"].to_pylist(), b["page"].to_pylist(), strict=True)]


def adaptive(relation: AnyRelation, kind: Any = AdaptiveMeshJoin, **options: Any) -> Any:
    options = {
        "on": {"s": "k"},
        "memory": "1MB",
        "columns": ["page"],
        "clock": FakeClock(),
        "half_life_s": 0.3,
        **options,
    }
    return kind(relation, STREAM, **options)


class Watched(AdaptiveMeshJoin):
    """Notes the queue each time that a packet was dequeued."""

    def queue(self) -> list[tuple[list[int], int]]:
        """Q of the example: the tuples of each packet, and the page they started at."""
        return [
            (packet.batch["tuple"].to_pylist(), packet.entered % self.relation.num_pages)
            for packet in self._window.packets
        ]

    def _expire(self) -> Results:
        yield from super()._expire()
        self.dequeued.append(self.queue())

    dequeued: list[list[tuple[list[int], int]]]


def test_example_3_1(tmp_path) -> None:
    """MESH Example 3.1, table by table: the queue, and the pages that each of its tuples was joined with."""
    with adaptive(partners_on_every_page(tmp_path, pages=3), Watched, rows_per_step=1, pages_per_step=1) as join:
        join.dequeued = []
        joined: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}

        def loop(arrival: int) -> list[list[tuple[int, int]]]:
            """Read a tuple and do one iteration; the meetings of each part of it that came out on its own."""
            assert list(join.push(tuples(arrival))) == []
            parts = [meetings(iter([batch])) for batch in join.step()]
            assert sum(map(len, parts)) == len({pair for part in parts for pair in part})
            return parts

        def note(part: list[tuple[int, int]]) -> None:
            for number, page in part:
                assert page not in joined[number]
                joined[number].add(page)

        (first,) = loop(0)
        note(first)
        assert join.queue() == [([0], 0)]
        assert joined[0] == {0}

        (second,) = loop(1)
        note(second)
        assert join.queue() == [([0], 0), ([1], 1)]
        assert joined == {0: {0, 1}, 1: {1}, 2: set()}

        join.set_parameters(pages_per_step=2)
        after_p2, after_p0 = loop(2)
        note(after_p2)
        assert join.dequeued[0] == [([1], 1), ([2], 2)]
        assert joined == {0: {0, 1, 2}, 1: {1, 2}, 2: {2}}

        note(after_p0)
        assert join.dequeued[1] == [([2], 2)]
        assert joined == {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 2}}

        assert join.queue() == [([2], 2)]
        assert join.stats.steps == 3
        note(meetings(join.flush()))
        assert joined[2] == {0, 1, 2}


def check_all_is_charged(join: AdaptiveMeshJoin) -> None:
    """Check that buffers and slots are charged, and that the budget would hold with the widest tuple."""
    reader, charged = join._scan.reader, join.budget.by_name
    held = [*reader._free, *(buffer for _, buffer, _ in reader._pending)] + [
        b for b in [reader._taken] if b is not None
    ]
    assert sum(buffer.data.size for buffer in held) <= charged["page buffers"]
    assert join._window._matched.size == join._window.slots >= join._window.held
    single = join.spec.condition.single_codes
    assert join._window.index_bytes(join._window.slots, single_codes=single) <= charged["stream index"]
    waiting = max(charged.get("stream tuples", 0), join._allocation.memory.widest_tuple)
    fixed = charged["page index"] + charged["matches"] + charged.get("pair checks", 0) + join._split.staging_bytes
    assert fixed + charged["page buffers"] + charged["stream index"] + waiting <= join.budget.limit


steps = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([1, 2, 3, 10, 1000]), st.integers(0, 9)), max_size=40)


@pytest.mark.slow
@example(pages=7, steps=[(6, 1, 1), (1, 1000, 0)], memory="150kB")  # large buffers in use while many may enter
@given(pages=st.integers(1, 9), steps=steps, memory=st.sampled_from(["80kB", "150kB", "1MB"]))
@some
def test_every_tuple_meets_every_page_once_however_b_and_w_change(
    pages: int, steps: list[tuple[int, int, int]], memory: str
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        met: list[tuple[int, int]] = []
        arrived = 0
        with adaptive(partners_on_every_page(Path(folder), pages), memory=memory) as join:
            for b, w, arrivals in steps:
                join.set_parameters(pages_per_step=b, rows_per_step=w)
                check_all_is_charged(join)
                met += meetings(join.push(tuples(*range(arrived, arrived + arrivals))))
                arrived += arrivals
                before, waited = join._scan.position, join.stats.rows_waiting
                met += meetings(join.step())
                if waited:
                    moved = join._scan.position - before
                    assert moved == min(b, pages) or join.stats.rows_waiting == 0
                check_all_is_charged(join)
                finished = Counter(number for number, _ in met)
                assert sum(n == pages for n in finished.values()) == join.stats.rows_done
            met += meetings(join.flush())
            assert not join._scan.reader.waiting
            assert join._scan.asked == join._scan.position
        assert Counter(met) == Counter((number, page) for number in range(arrived) for page in range(pages))


@pytest.mark.slow
@given(case=cases(), changes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 50)), min_size=1), data=st.data())
@some
def test_results_equal_the_batch_join_however_b_and_w_change(case: Case, changes: Any, data: st.DataObject) -> None:
    with case.built() as relation:
        results = []
        with AdaptiveMeshJoin(relation, case.stream_schema, on=case.on, how=case.how, memory="1MB") as join:
            for i, batch in enumerate(case.batches * 2):
                for b, w in data.draw(st.lists(st.sampled_from(changes), max_size=3)):
                    join.set_parameters(pages_per_step=b, rows_per_step=w, retune=i % 2 == 1)
                    results += join.step()
                results += join.push(batch)
            results += join.flush()
            table = pa.Table.from_batches(results, join.schema)
        twice = pa.concat_tables([case.stream, case.stream])
    assert multiset(table) == multiset(batch_join(twice, case.relation, case.on, case.how, case.payload))


def many_pages(folder: Path, pages: int = 120, rows_per_page: int = 4) -> Relation:
    rows = pages * rows_per_page
    table = pa.table({"k": range(rows), "page": range(rows), "filler": [b"\x00" * (3400 // rows_per_page)] * rows})
    relation = Relation.build(table, folder / "r", key="k", page_bytes=4096)
    assert relation.num_pages == pages
    return relation


DISK = {"seek_s": 0.010, "transfer_s": 0.001}
COSTS = MeshFactors(**DISK, packet_s=0.0)


class Feed:
    """Pushes a stream at a rate, a batch for each tenth of a second."""

    def __init__(self, join: SemiStreamJoin, clock: FakeClock, keys: int) -> None:
        self.join, self.clock, self.keys = join, clock, keys
        self.pushed = 0
        self.interval_s = 0.1

    def run(self, rate: int, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.now_s += self.interval_s
            keys = [(self.pushed + i) * 31 % self.keys for i in range(rate // 10)]
            batch = pa.record_batch([keys, list(range(self.pushed, self.pushed + len(keys)))], schema=STREAM)
            self.pushed += len(keys)
            list(self.join.push(batch))


def tunable_bytes(join: SemiStreamJoin) -> int:
    """Return the used bytes that depend on b and w."""
    held = join.budget.by_name
    return join.budget.used - held["page index"] - held["matches"]


def test_b_w_and_memory_follow_the_rate(tmp_path) -> None:
    clock, disk = FakeClock(), SimulatedDisk(**DISK)
    relation = many_pages(tmp_path)
    with adaptive(relation, memory="8MB", clock=clock, disk=disk, factors=COSTS) as join:
        assert join.stats.trace[0].rate is None  # nothing is known yet: all of the budget
        whole = tunable_bytes(join)
        feed = Feed(join, clock, keys=480)
        seen = {}
        for rate in (1000, 2000, 4000, 1000):
            feed.run(rate, seconds=6)
            point = join.stats.trace[-1]
            assert point.rate == pytest.approx(rate, rel=0.12)
            assert 1.3 * rate <= point.service_rate <= 1.8 * rate
            assert (point.pages_per_step, point.rows_per_step) == (join.pages_per_step, join.rows_per_step)
            assert point.memory_bytes <= join.budget.limit
            # By MESH (5), w tuples are taken in no more time than they need to come: on this very disk.
            assert join.rows_per_step >= rate * (DISK["seek_s"] + DISK["transfer_s"] * join.pages_per_step)
            assert join.runs > 20 >= 2 * len(join._window.packets)  # of several loops each
            assert join._window.held <= join.rows_per_step * (join.runs + join._loops)
            used = tunable_bytes(join)
            if rate in seen:
                assert used == pytest.approx(seen[rate][2], rel=0.15)  # memory needed by a faster stream is given back
                assert abs(join.pages_per_step - seen[rate][0]) <= 1
            seen[rate] = join.pages_per_step, join.rows_per_step, used
        b, w, used = (tuple(seen[rate][i] for rate in (1000, 2000, 4000)) for i in range(3))
        assert b[0] < b[1] < b[2]
        assert w[0] < w[1] < w[2]
        assert used[0] < used[1] < used[2] < whole
        times = [point.time_s for point in join.stats.trace]
        assert times == sorted(times)
        assert all(
            (before.pages_per_step, before.rows_per_step) != (after.pages_per_step, after.rows_per_step)
            for before, after in zip(list(join.stats.trace), list(join.stats.trace)[1:], strict=False)
        )
        list(join.flush())
        assert join.stats.rows_done == join.stats.matched == feed.pushed


def test_w_and_memory_follow_the_rate_on_plain_parquet(tmp_path) -> None:
    """Pages are decoded one by one: b neither changes nor costs memory, and what decoding takes is charged all the
    time.
    """
    rows = 9000
    table = pa.table({"k": [i * 7919 % rows for i in range(rows)], "page": range(rows)})
    pq.write_table(table, tmp_path / "r.parquet", row_group_size=3000)
    relation = ParquetRelation.open(tmp_path / "r.parquet", page_bytes=4096)
    pages = relation.num_pages
    assert pages > 50
    clock, page_s = FakeClock(), 0.005
    with MeshJoin(relation, STREAM, on={"s": "k"}, memory="8MB", columns=["page"]) as plain:
        buffers = plain.budget.by_name["page buffers"]
    factors = MeshFactors(seek_s=0.0, transfer_s=page_s, packet_s=0.0)
    with adaptive(relation, memory="8MB", clock=clock, factors=factors) as join:
        decoding = join.budget.by_name["decoding"]
        assert decoding == join.relation.decoding_bytes
        b = join.pages_per_step
        assert 8 <= join.runs <= 0.5 * pages**0.5 + 8
        feed = Feed(join, clock, keys=rows)
        seen = {}
        for rate in (1000, 4000, 1000):
            feed.run(rate, seconds=2)
            point = join.stats.trace[-1]
            assert point.rate == pytest.approx(rate, rel=0.12)
            assert 1.3 * rate <= point.service_rate <= 1.8 * rate
            assert join.pages_per_step == point.pages_per_step == b
            assert join.rows_per_step >= rate * page_s * b
            assert len({packet.entered for packet in join._window.packets}) <= join.runs + 1
            charged = join.budget.by_name
            assert buffers >= charged["page buffers"] >= relation.page_bytes
            assert charged["decoding"] == decoding
            assert join._window.index_bytes(join._window.slots) <= charged["stream index"]
            seen.setdefault(rate, []).append(charged["stream index"] + charged.get("stream tuples", 0))
        assert seen[1000][1] == pytest.approx(seen[1000][0], rel=0.15)
        assert seen[4000][0] > 3 * seen[1000][0]
        list(join.flush())
        assert join.stats.rows_done == join.stats.matched == feed.pushed
        assert join.budget.peak <= join.budget.limit


def test_a_stream_too_fast_for_the_budget_gets_the_greatest_service_rate(tmp_path) -> None:
    clock = FakeClock()
    relation = many_pages(tmp_path)
    with adaptive(relation, memory="300kB", clock=clock, factors=COSTS) as join:
        Feed(join, clock, keys=480).run(20_000, seconds=1)
        point = join.stats.trace[-1]
        assert point.service_rate < point.rate
        assert join.budget.used <= join.budget.limit
        list(join.flush())
        assert join.stats.rows_done == 20_000


class OnASlowMachine(AdaptiveMeshJoin):
    """Takes three times as long for its pages as the factors say."""

    clock: FakeClock

    def _join(self, run):
        starts = (self._scan.position - self._iteration_start) % self.pages_per_step == 0
        self.clock.now_s += 3 * (starts * DISK["seek_s"] + DISK["transfer_s"] * run.pages.size)
        assert self.clock.now_s < 100, "the join has become slower and slower"
        yield from super()._join(run)


def test_a_stream_pushed_as_fast_as_it_is_taken_makes_the_join_as_fast_as_it_can_be(tmp_path) -> None:
    """Such a stream only shows the rate of the join itself.

    The join must not settle for it, nor take higher costs than its factors predict for a slower stream.
    """
    clock = FakeClock()
    relation = many_pages(tmp_path)
    with adaptive(relation, OnASlowMachine, memory="4MB", clock=clock, factors=COSTS) as join:
        join.clock = clock
        feed = Feed(join, clock, keys=480)
        feed.run(50, seconds=4)
        slow = join.stats.trace[-1]
        assert 1.3 * slow.rate <= slow.service_rate <= 3 * slow.rate
        feed.interval_s = 0.0
        feed.run(20_000, seconds=20)
        fast = join.stats.trace[-1]
        memory = join._allocation.memory
        greatest = MeshTuner(join._costs(), memory).greatest_rate()
        assert fast.pages_per_step == greatest.pages_per_step
        assert fast.memory_bytes == memory.pool > 5 * slow.memory_bytes
        loop_s = 3 * (DISK["seek_s"] + DISK["transfer_s"] * fast.pages_per_step)
        assert fast.service_rate == pytest.approx(greatest.rows_per_step / loop_s, rel=0.2)


def test_a_silent_stream_gives_its_memory_back(tmp_path) -> None:
    clock = FakeClock()
    with adaptive(many_pages(tmp_path), memory="8MB", clock=clock, factors=COSTS) as join:
        feed = Feed(join, clock, keys=480)
        feed.run(4000, seconds=3)
        busy = tunable_bytes(join)
        for _ in range(150):
            clock.now_s += 0.1
            list(join.step())
        assert join.stats.rows_waiting == 0
        assert tunable_bytes(join) < busy / 5


def test_a_wide_tuple_finds_room_whatever_b_and_w_are(tmp_path) -> None:
    relation = many_pages(tmp_path, pages=40)
    schema = pa.schema([("s", pa.int64()), ("text", pa.string())])
    options = {"on": {"s": "k"}, "memory": "400kB", "columns": ["page"]}
    with MeshJoin(relation, schema, **options) as plain:
        widest = min(plain._split.payload_bytes, plain._split.staging_bytes - plain._split.widest_row) - 100
    with AdaptiveMeshJoin(relation, schema, **options) as join:
        for b, w in ((40, 10**6), (1, 10**6), (40, 1), (13, 5000)):
            join.set_parameters(pages_per_step=b, rows_per_step=w)
            for text in ("x" * widest, "y", "z" * widest):
                list(join.push(pa.record_batch([[3], [text]], schema=schema)))
        list(join.flush())
        assert join.stats.outputs == join.stats.rows_done == 12
        assert join.budget.peak <= join.budget.limit


def test_parameters_set_by_hand_stay_until_it_may_tune_itself_again(tmp_path) -> None:
    clock = FakeClock()
    with adaptive(many_pages(tmp_path), memory="8MB", clock=clock, factors=COSTS) as join:
        feed = Feed(join, clock, keys=480)
        join.set_parameters(pages_per_step=17, rows_per_step=333)
        feed.run(1000, seconds=2)
        assert (join.pages_per_step, join.rows_per_step) == (17, 333)
        join.set_parameters(rows_per_step=50)
        feed.run(1000, seconds=2)
        assert (join.pages_per_step, join.rows_per_step) == (17, 50)
        assert join.runs == 8
        join.set_parameters(pages_per_step=10**6)
        assert join.pages_per_step == 120  # all of R
        join.set_parameters(retune=True)
        feed.run(1000, seconds=2)
        assert 1300 <= join.stats.trace[-1].service_rate <= 1800


def test_parameters_set_by_hand_outlive_a_change_of_the_budget_and_of_the_relation(tmp_path) -> None:
    relation = many_pages(tmp_path)
    with adaptive(relation, memory="8MB") as join:
        join.set_parameters(pages_per_step=17, rows_per_step=333)
        list(join.push(tuples(1, 2)))
        list(join.set_memory("2MB"))
        assert (join.pages_per_step, join.rows_per_step) == (17, 333)
        join.refresh(relation.update(pa.table({"k": [3], "page": [7], "filler": [b""]})))
        list(join.push(tuples(3)))
        assert join.relation.version > relation.version
        assert (join.pages_per_step, join.rows_per_step) == (17, 333)
        list(join.flush())
        assert join.stats.rows_done == 3


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*batch.to_pydict().values(), strict=True))


@pytest.mark.parametrize(
    "condition",
    [
        {"on": None, "where": "s.s BETWEEN r.k AND r.page"},
        {"on": {"tuple": "page"}, "where": "s.s >= r.k"},
        {"on": {"tuple": "page"}, "columns": ["k"]},
    ],
)
def test_other_conditions_and_null_keys_are_exact_and_charged_whatever_b_and_w_are(tmp_path, condition) -> None:
    """Ranges take more memory per tuple, columns other than the key more per run, and null keys have pages of their
    own.
    """
    keys = [None if i % 9 == 0 else i // 3 for i in range(300)]
    table = pa.table(
        {"k": pa.array(keys, pa.int64()), "page": [i % 40 for i in range(300)], "filler": ["x" * 300] * 300}
    )
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=4096)
    stream = pa.record_batch([[i * 7 % 110 for i in range(400)], [i % 60 for i in range(400)]], schema=STREAM)
    options = {"columns": ["filler"], **condition}
    with MeshJoin(relation, STREAM, memory="8MB", **options) as plain:
        expected = Counter(row for b in [*plain.push(stream), *plain.flush()] for row in rows_of(b))
    for memory in ("600kB", "2MB"):
        with adaptive(relation, memory=memory, **options) as join:
            seen: Counter[Any] = Counter()
            for i, (b, w) in enumerate([(1, 5), (30, 100), (2, 10**9), (7, 3), (1, 40)]):
                join.set_parameters(pages_per_step=b, rows_per_step=w)
                check_all_is_charged(join)
                for batch in [*join.push(stream.slice(i * 80, 80)), *join.step()]:
                    seen.update(rows_of(batch))
                check_all_is_charged(join)
            for batch in join.flush():
                seen.update(rows_of(batch))
            assert seen == expected
            assert sum(seen.values()) > 100


def test_a_larger_b_makes_fewer_requests_and_takes_more_memory(tmp_path) -> None:
    relation = many_pages(tmp_path)
    seen = []
    for b in (1, 10, 60):
        with adaptive(relation, memory="8MB", pages_per_step=b, rows_per_step=4) as join:
            list(join.push(tuples(*range(500))))
            buffers = join.budget.by_name["page buffers"]
            list(join.flush())
            stats = join.stats
            assert stats.pages_read / stats.requests == pytest.approx(b, rel=0.05)
            assert stats.pages_read == pytest.approx(b * stats.steps, rel=0.01)
            seen.append(buffers)
    assert seen[0] < seen[1] / 5 < seen[2] / 25


def test_buffers_stay_charged_until_their_runs_are_joined(tmp_path) -> None:
    with adaptive(many_pages(tmp_path), memory="8MB", pages_per_step=30, rows_per_step=5) as join:
        list(join.push(tuples(1, 2)))
        list(join.step())
        large = join.budget.by_name["page buffers"]
        join.set_parameters(pages_per_step=1)
        seen = []
        while join.stats.rows_waiting:
            check_all_is_charged(join)
            list(join.step())
            seen.append(join.budget.by_name["page buffers"])
        assert seen[0] == large  # the requested runs of 30 pages are still there
        assert seen[-1] < large / 10
        assert join.stats.pages_read == 120


def test_b_and_w_cannot_change_under_unconsumed_results(tmp_path) -> None:
    with adaptive(many_pages(tmp_path, pages=3)) as join:
        join.push(tuples(1))
        with pytest.raises(JoinInProgress, match="push"):
            join.set_parameters(pages_per_step=1)


@pytest.mark.parametrize("option", ["rows_per_step", "pages_per_step", "half_life_s"])
def test_options_that_make_no_sense_are_refused(tmp_path, option: str) -> None:
    relation = many_pages(tmp_path, pages=1)
    with pytest.raises(InvalidArgument, match=f"{option} is 0"):
        adaptive(relation, **{option: 0})


def test_join_by_name(tmp_path) -> None:
    relation = partners_on_every_page(tmp_path, pages=3)
    results = join([tuples(1, 2)], relation, on={"s": "k"}, operator="adaptive_mesh", memory="1MB")
    assert results.read_all().num_rows == 6


def test_the_factors_are_those_of_a_calibrated_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MESH Table 1 from the operators and the disk of the profile, and defaults where there is none."""
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "profiles"))
    relation = Relation.build(pa.table({"k": range(5000), "v": range(5000)}), tmp_path / "r", key="k")
    schema = pa.schema([("k", pa.int64())])

    def factors() -> MeshFactors:
        with AdaptiveMeshJoin(relation, schema, on="k", memory="1MB") as join:
            return join._factors

    assert factors() == MeshFactors()
    machine = Machine("slow", DiskCosts(0.004, 1e-8), {"adaptive_mesh": OperatorCosts(5e-9, value_s=2e-9, row_s=3e-9)})
    save_profile(machine, relation.path)
    found, page_bytes = factors(), relation.nbytes / relation.num_pages
    assert found == MeshFactors.of(machine, page_bytes=page_bytes, values_per_result=1)
    assert (found.seek_s, found.probe_s, found.row_s(results=1)) == (0.004, 3e-9, pytest.approx(7e-9))
    assert found.read_s(10) == pytest.approx(0.004 + 10 * page_bytes * 1e-8)
