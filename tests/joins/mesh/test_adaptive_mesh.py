"""AdaptiveMeshJoin: MESH Example 3.1, any change of b and w, and how it follows the rate of its stream."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from semistream import AdaptiveMeshJoin, MeshJoin, Relation, join
from semistream.errors import InvalidArgument, JoinInProgress
from semistream.joins.loop import Results
from tests.joins.cases import MEMORY_BACKED, Case, cases
from tests.joins.mesh.adaptive_joins import STREAM, adaptive, many_pages, meetings, partners_on_every_page, tuples
from tests.oracle import batch_join, multiset

some = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


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
