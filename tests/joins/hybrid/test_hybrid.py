"""HybridJoin as the paper describes it: Fig. 5, intermittent streams, random deletion, reads for waiting tuples."""

from __future__ import annotations

import tempfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream import HybridJoin, MeshJoin, Relation, SemiStreamJoin
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.relation import SimulatedDisk
from tests.joins.cases import MEMORY_BACKED
from tests.joins.mesh.test_mesh import pages_relation
from tests.oracle import batch_join, multiset

SCHEMA = pa.schema([("s", pa.int64())])


def keys(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"s": pa.array(values, pa.int64())})


def out(results) -> list[int]:
    return sorted(value for batch in results for value in batch.column("s").to_pylist())


def hybrid(relation: Relation, **options: object) -> HybridJoin:
    return HybridJoin(relation, SCHEMA, **({"on": {"s": "k"}, "memory": "1MB", "columns": []} | options))


def test_operation_of_fig_5(tmp_path) -> None:
    """Four pages of two keys; an iteration serves the oldest tuple and all that wait for the same page."""
    relation = pages_relation(tmp_path, pages=4, rows_per_page=2)
    with hybrid(relation, pages_per_step=1) as join:
        assert out(join.push(keys(5, 0, 4, 1, 5))) == []  # lines 3 to 6: into H and Q
        assert out(join.step()) == [4, 5, 5]  # lines 7 to 15: 5 is the oldest and its page is p3, which holds 4 too
        assert join.stats.rows_waiting == 2
        assert join.stats.pages_read == 2  # p3, and p1 is being read: 0 is the oldest now, whatever comes
        assert out(join.push(keys(5, 7))) == []  # into the slots that were vacated
        assert out(join.step()) == [0, 1]  # Q is now 0, 1, 5, 7
        assert out(join.step()) == [5]
        assert out(join.step()) == [7]
        assert out(join.step()) == []
    assert join.stats.steps == 4
    assert join.stats.pages_read == 4  # p3, p1, p3, p4: p2 is never asked for
    assert join.stats.probes == 8
    assert join.stats.inserts == join.stats.expiries == 7


def test_a_stream_that_pauses_gets_out_by_steps_alone(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=50, rows_per_page=2)
    with hybrid(relation, pages_per_step=1) as join:
        list(join.push(keys(*range(0, 100, 5))))
        waiting = join.stats.rows_waiting
        while waiting:
            assert list(join.step())
            assert join.stats.rows_waiting < waiting
            waiting = join.stats.rows_waiting
        list(join.push(keys(3)))  # and goes on afterwards
        assert out(join.step()) == [3]


def test_few_tuples_read_few_pages_and_many_read_many(tmp_path) -> None:
    """One page serves one tuple; where tuples wait all around, a seek is worth a whole run."""
    relation = pages_relation(tmp_path, pages=40, rows_per_page=2)
    with hybrid(relation, pages_per_step=10, seek_bytes=40_000) as join:
        list(join.push(keys(40)))
        list(join.step())
        assert join.stats.pages_read == 1
        list(join.push(keys(*range(40, 80), 0)))
        list(join.step())
        assert join.stats.rows_waiting == 21
        list(join.flush())
        assert (join.stats.steps, join.stats.pages_read) == (4, 1 + 10 + 10 + 1)


def test_the_partition_lies_where_most_tuples_wait(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=20, rows_per_page=2)
    with hybrid(relation, pages_per_step=4, seek_bytes=100_000) as join:
        list(join.push(keys(20, 14, 14, 16, 18, 22)))  # pages 10, 7, 7, 8, 9, 11: not 10 and on, but 7 to 10
        assert out(join.step()) == [14, 14, 16, 18, 20]
        assert out(join.flush()) == [22]


def test_tuples_that_no_page_can_serve_leave_without_a_read(tmp_path) -> None:
    table = pa.table({"k": [*range(12), *range(20, 32)], "filler": [b"\x00" * 300] * 24})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=4096)
    assert relation.num_pages == 2
    assert relation.table.last_code[0] < 15 < relation.table.first_code[1]
    with hybrid(relation, columns=None, how="left") as join:
        list(join.push(keys(None, 99, -1, 15, None)))
        assert [b.num_rows for b in join.step()] == [5]
        assert (join.stats.steps, join.stats.pages_read, join.stats.unmatched) == (1, 0, 5)
        assert join.stats.inserts == 0
    with hybrid(relation) as join:
        list(join.push(keys(None, 99, 3)))
        assert out(join.step()) == [3]  # the step reads for the oldest tuple that a page can serve
        assert join.stats.rows_waiting == 0


def test_hot_keys_leave_early_and_cost_fewer_pages_than_a_scan(tmp_path) -> None:
    """HYBRID 5: the stream is skewed and R is in the order of its frequencies."""
    relation = pages_relation(tmp_path, pages=400, rows_per_page=4)
    stream = Zipf(1.0, 1600, seed=7, permute=False).keys(60_000)
    batches = [keys(*stream[i : i + 500].tolist()) for i in range(0, stream.size, 500)]
    joins: list[SemiStreamJoin] = []
    for kind in (MeshJoin, HybridJoin):
        disk = SimulatedDisk(seek_s=0.0004, transfer_s=0.0001)
        options = {"on": {"s": "k"}, "columns": [], "disk": disk, "pages_per_step": 8, "memory": 220_000}
        if kind is HybridJoin:
            options["seek_bytes"] = 4 * 4096
        with kind(relation, SCHEMA, **options) as join:
            produced = Counter(value for batch in batches for value in out(join.push(batch)))
            produced.update(out(join.flush()))
        assert produced == Counter(stream.tolist())
        joins.append(join)
    mesh, hybrid_join = joins
    assert hybrid_join.stats.pages_read < mesh.stats.pages_read / 4
    assert hybrid_join._disk.now_s < mesh._disk.now_s / 3


def test_hot_tuples_do_not_wait_for_cold_ones_ahead_of_them(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=30, rows_per_page=2)
    with hybrid(relation, pages_per_step=1) as join:
        list(join.push(keys(1, *range(2, 60, 2), *[0] * 500)))
        assert out(join.step()) == [0] * 500 + [1]
        assert join.stats.rows_waiting == 29


Bounds = tuple[int | None, int | None]
RANGES = pa.schema([("s", pa.int64()), ("t", pa.int64())])
BETWEEN = "r.k BETWEEN s.s AND s.t"


class _Model:
    """HYBRIDJOIN one tuple and one page at a time, on pages given as lists of keys.

    An iteration reads the first page that the oldest tuple has not met, and all tuples meet it that need it.
    """

    def __init__(self, pages: list[list[int]]) -> None:
        self.pages = pages
        self.queue: list[tuple[Bounds, list[int]]] = []
        self.pages_read = 0

    def push(self, ranges: list[Bounds]) -> None:
        for low, high in ranges:
            asked = low is not None and high is not None and low <= high
            needed = [p for p, keys in enumerate(self.pages) if asked and keys[0] <= high and low <= keys[-1]]
            self.queue.append(((low, high), needed))

    def step(self) -> list[int]:
        self.queue = [(bounds, needed) for bounds, needed in self.queue if needed]
        if not self.queue:
            return []
        page = self.queue[0][1][0]
        self.pages_read += 1
        meeting = [bounds for bounds, needed in self.queue if page in needed]
        self.queue = [(bounds, [p for p in needed if p != page]) for bounds, needed in self.queue]
        self.queue = [(bounds, needed) for bounds, needed in self.queue if needed]
        return sorted(low for low, high in meeting for key in self.pages[page] if low <= key <= high)


small_keys = st.integers(0, 4).map(lambda key: key * 3)  # they repeat over several pages, and there are gaps between
r_keys = st.lists(small_keys, max_size=60)


def actions(bounds: st.SearchStrategy[Bounds]) -> st.SearchStrategy[list[int | list[Bounds]]]:
    return st.lists(st.one_of(st.integers(1, 6), st.lists(bounds, max_size=12)))


single = st.one_of(st.integers(-1, 13), st.none()).map(lambda key: (key, key))
ranges = st.tuples(*2 * [st.one_of(st.integers(-1, 13), st.none())])


@pytest.mark.slow
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(r_keys, actions(single))
def test_random_deletion_is_that_of_the_algorithm_one_tuple_at_a_time(r_keys, actions) -> None:
    """Steps give the results of Fig. 5, with keys that repeat over pages, and read pages only as often."""
    check_against_the_model(r_keys, actions, on={"s": "k"})


@pytest.mark.slow
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(r_keys, actions(ranges))
def test_ranges_are_met_page_by_page_as_by_the_algorithm_one_tuple_at_a_time(r_keys, actions) -> None:
    check_against_the_model(r_keys, actions, where=BETWEEN)


def check_against_the_model(r_keys: list[int], actions: list[int | list[Bounds]], **condition: object) -> None:
    filler = pa.array([b"\x00" * 700] * len(r_keys), pa.binary())
    table = pa.table({"k": pa.array(r_keys, pa.int64()), "filler": filler})
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        relation = Relation.build(table, f"{folder}/r", key="k", page_bytes=4096)
        runs = relation.read_pages(np.arange(relation.num_pages))
        model = _Model([run.batch(i, ["k"]).column(0).to_pylist() for run in runs for i in range(run.pages.size)])
        options = {"memory": "1MB", "columns": [], "pages_per_step": 1}
        with HybridJoin(relation, RANGES, **options, **condition) as join:
            for action in [*actions, 500]:
                if isinstance(action, int):
                    for _ in range(action):
                        assert out(join.step()) == model.step()
                        assert join.stats.rows_waiting == len(model.queue)
                else:
                    low, high = (pa.array([bounds[i] for bounds in action], pa.int64()) for i in range(2))
                    assert out(join.push(pa.record_batch([low, high], schema=RANGES))) == []
                    model.push(action)
            assert not model.queue
            assert join.stats.pages_read == model.pages_read


def test_a_key_whose_rows_are_more_than_the_memory_streams_out(tmp_path) -> None:
    """Its pages are read once for all tuples with that key, a run at a time; neighbours on the pages are joined too."""
    r_keys = [1, 2, *[5] * 4000, 8, 9]
    table = pa.table({"k": r_keys, "text": [f"{i:0100}" for i in range(len(r_keys))]})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=2048)
    memory = 60_000
    assert relation.nbytes > 6 * memory
    stream = pa.table({"s": [5, 2, 8, 5, 5, 1]})
    with HybridJoin(relation, SCHEMA, on={"s": "k"}, memory=memory) as join:
        list(join.push(stream.to_batches()[0]))
        sizes, rows = [], []
        for batch in join.flush():
            sizes.append(batch.nbytes)
            rows.append(batch)
        stats = join.stats
    assert stats.rows_waiting == 0
    assert stats.steps == stats.requests > 6
    assert max(sizes) < memory / 3
    assert stats.pages_read == relation.num_pages
    assert stats.peak_bytes <= memory
    expected = batch_join(stream, table, {"s": "k"}, "inner", ["text"])
    assert multiset(pa.Table.from_batches(rows)) == multiset(expected)


def test_a_tuple_meets_its_pages_whenever_they_are_read(tmp_path) -> None:
    """A key on both sides of a partition's end is joined with each side as it comes, and leaves with the last."""
    r_keys = [1, 2, 3, 5, 5, 5, 7, 8, 9]
    table = pa.table({"k": r_keys, "filler": [b"\x00" * 850] * 9})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=4096)
    assert relation.table.rows.tolist() == [4, 4, 1]  # 5 is on two pages
    with hybrid(relation, pages_per_step=1) as join:
        list(join.push(keys(2, 5)))
        assert out(join.step()) == [2, 5]
        assert join.stats.rows_waiting == 1
        list(join.push(keys(5)))  # it has met nothing yet
        assert out(join.step()) == [5, 5, 5, 5]
        assert out(join.step()) == [5]
        assert join.stats.rows_waiting == 0
        assert join.stats.pages_read == 3
        list(join.push(keys(9, 5, 1)))
        assert out(join.flush()) == [1, 5, 5, 5, 9]


def test_tuples_with_wide_ranges_share_one_pass_over_the_relation(tmp_path) -> None:
    """Tuples that each need half of R share its reads: later ones join the remaining pages on the way."""
    relation = pages_relation(tmp_path, pages=100, rows_per_page=2)
    stream = [(low, 199) for low in range(0, 100)]
    with HybridJoin(relation, RANGES, where=BETWEEN, memory="1MB", columns=[], pages_per_step=10) as join:
        produced = Counter()
        for begin in range(0, 100, 10):
            low, high = (pa.array([bounds[i] for bounds in stream[begin : begin + 10]]) for i in range(2))
            produced.update(out(join.push(pa.record_batch([low, high], schema=RANGES))))
            produced.update(out(join.step()))
        produced.update(out(join.flush()))
    assert produced == Counter({low: high - low + 1 for low, high in stream})
    assert join.stats.pages_read <= 2 * relation.num_pages


def test_memory_for_ranges_is_charged_only_to_joins_with_ranges(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=100, rows_per_page=2)
    with (
        HybridJoin(relation, RANGES, on={"s": "k"}, memory="1MB") as equality,
        HybridJoin(relation, RANGES, where=BETWEEN, memory="1MB") as by_range,
    ):
        assert equality.budget.by_name["page index"] < by_range.budget.by_name["page index"]
        assert equality._queue.slots > by_range._queue.slots


@pytest.mark.parametrize("where", ["s.s != r.k", "s.s = r.filler_length", "s.s < r.filler_length"])
def test_conditions_that_no_ordered_index_serves_are_refused_by_name(tmp_path, where: str) -> None:
    table = pa.table({"k": [1, 2], "filler_length": [3, 4]})
    relation = Relation.build(table, tmp_path / "r", key="k")
    with pytest.raises(InvalidArgument, match=r"operator 'hybrid' finds rows by.*MeshJoin \(operator='mesh'\)"):
        HybridJoin(relation, SCHEMA, where=where, memory="1MB")


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_relation_whose_pages_lie_in_several_files(tmp_path, how: str) -> None:
    """After updates the pages of a range, even of one key, are not one behind the other on disk."""
    table = pa.table({"k": [i // 6 for i in range(600)], "v": range(600)})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=512)
    for key in (50, 10, 51, 70):
        upserts = pa.table({"k": [key] * 60, "v": range(60)})
        relation = relation.update(upserts)
        table = pa.concat_tables([table.filter(pa.compute.not_equal(table["k"], key)), upserts])
    assert len(np.unique(relation.table.file)) > 2
    stream = pa.table({"s": np.random.default_rng(3).integers(-5, 110, 700)})
    for memory in (40_000, "1MB"):
        with HybridJoin(relation, SCHEMA, on={"s": "k"}, how=how, memory=memory) as join:
            results = [b for batch in stream.to_batches(max_chunksize=90) for b in join.push(batch)]
            results += join.flush()
        expected = batch_join(stream, table, {"s": "k"}, how, ["v"])
        assert multiset(pa.Table.from_batches(results, join.schema)) == multiset(expected)


def test_memory_of_tuples_that_left_is_given_back_while_others_stay(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=60, rows_per_page=2)
    schema = pa.schema([("s", pa.int64()), ("text", pa.string())])
    hot = pa.record_batch({"s": [0] * 400 + list(range(2, 102, 2)), "text": ["x" * 2000] * 450}, schema=schema)
    with HybridJoin(relation, schema, on={"s": "k"}, memory="8MB", columns=[], pages_per_step=1) as join:
        list(join.push(hot))
        del hot
        full, allocated = join.budget.by_name["stream tuples"], pa.total_allocated_bytes()
        assert sum(batch.num_rows for batch in join.step()) == 400
        assert join.stats.rows_waiting == 50
        left = join.budget.by_name["stream tuples"]
        assert left < full / 8
        assert allocated - pa.total_allocated_bytes() > 0.9 * (full - left)
        list(join.flush())
        assert "stream tuples" not in join.budget.by_name


def test_pairs_and_tuples_without_a_partner_share_the_memory_for_output(tmp_path) -> None:
    table = pa.table({"k": range(0, 400, 2), "v": ["y" * 60] * 200})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=4096)
    stream = pa.table({"s": [i * 7 % 400 for i in range(3000)], "text": ["x" * 60] * 3000})
    for memory in range(60_000, 200_000, 20_000):
        with HybridJoin(relation, stream.schema, on={"s": "k"}, how="left", memory=memory) as join:
            results = [b for batch in stream.to_batches() for b in join.push(batch)]
            results += join.flush()
        expected = batch_join(stream, table, {"s": "k"}, "left", ["v"])
        assert multiset(pa.Table.from_batches(results)) == multiset(expected)


def test_wide_tuples_are_moved_within_the_budget(tmp_path) -> None:
    """Packets are small enough to be copied when a quarter of the queue is vacant and all memory is in use."""
    relation = pages_relation(tmp_path, pages=40, rows_per_page=2)
    values = [0 if i % 3 == 0 else i * 7 % 80 for i in range(600)]
    stream = pa.record_batch({"s": values, "text": ["x" * (3000 if i % 50 else 20_000) for i in range(600)]})
    for memory in range(200_000, 900_000, 100_000):
        with HybridJoin(relation, stream.schema, on={"s": "k"}, memory=memory, columns=[], pages_per_step=1) as join:
            assert sorted(out(join.push(stream)) + out(join.flush())) == sorted(values)


def test_slots_are_used_again_and_again(tmp_path) -> None:
    """Far more tuples than there are slots go through while one cold tuple waits behind others."""
    relation = pages_relation(tmp_path, pages=100, rows_per_page=2)
    with hybrid(relation, memory=60_000, pages_per_step=1) as join:
        slots = join._queue.slots
        produced = Counter()
        stream = np.random.default_rng(5).integers(0, 200, 40 * slots) ** 3 // 200**2
        for begin in range(0, stream.size, 997):
            produced.update(out(join.push(keys(*stream[begin : begin + 997].tolist()))))
        produced.update(out(join.flush()))
        assert produced == Counter(stream.tolist())
        assert join.stats.peak_bytes <= 60_000


@pytest.mark.parametrize(("option", "value"), [("pages_per_step", 0), ("seek_bytes", -1)])
def test_options_that_make_no_sense_are_refused(tmp_path, option: str, value: int) -> None:
    relation = pages_relation(tmp_path, pages=1)
    with pytest.raises(InvalidArgument, match=f"{option} is {value}"):
        hybrid(relation, **{option: value})


def test_an_idle_join_reads_nothing(tmp_path) -> None:
    with hybrid(pages_relation(tmp_path, pages=3)) as join:
        assert list(join.step()) == []
        assert list(join.flush()) == []
        assert join.stats.pages_read == 0
