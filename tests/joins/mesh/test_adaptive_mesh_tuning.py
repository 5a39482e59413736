"""AdaptiveMeshJoin follows the rate of its stream: b, w and memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream import AdaptiveMeshJoin, MeshFactors, MeshJoin, ParquetRelation, Relation, SemiStreamJoin
from semistream.costs.machine import Machine, OperatorCosts
from semistream.costs.profiles import save_profile
from semistream.joins.mesh.cost_model import MeshTuner
from semistream.relation import DiskCosts, SimulatedDisk
from tests.joins.clocks import FakeClock
from tests.joins.mesh.adaptive_joins import STREAM, adaptive, many_pages, tuples

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
