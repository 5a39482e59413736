"""Reading runs of pages ahead: the same every time, with errors where they belong and nothing left open."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.relation import (
    BufferedDisk,
    DiskCosts,
    PageSequence,
    PageSlots,
    Relation,
    SimulatedDisk,
    optimal_plan,
)
from tests.relation.read.conftest import ROWS, open_files
from tests.relation.row_sets import scratch_folder


def test_buffers_change_their_size_while_runs_are_under_way(relation: Relation) -> None:
    reader = relation.reader(run_bytes=4096, disk=BufferedDisk(), buffers=3)
    pages = np.arange(relation.num_pages)
    assert reader.resized
    reader.ask(pages[:3])
    reader.ask(pages[3:6])
    reader.resize(9000)
    assert reader.run_bytes == 9000
    assert not reader.resized
    reader.ask(pages[6:14])
    keys = []
    for asked in (3, 3, 8):
        assert not reader.resized or asked == 8
        run = reader.take()
        assert run.pages.size == asked
        keys += [key for i in range(asked) for key in run.batch(i, ["k"]).column(0).to_pylist()]
        del run
        reader.give_back()
    reader.close()
    assert keys == list(range(len(keys)))
    assert reader.resized
    assert reader.room == 3


def test_a_part_of_a_run_has_the_rows_of_its_pages(relation: Relation) -> None:
    reader = relation.reader(run_bytes=9000, disk=BufferedDisk())
    reader.ask(np.arange(8))
    run = reader.take()
    assert run.part(0, 8) is run
    part = run.part(2, 5)
    assert part.pages.tolist() == [2, 3, 4]
    for i in range(3):
        assert part.batch(i).equals(run.batch(i + 2))
    page, row = np.array([0, 2], np.int32), np.array([1, 0], np.int32)
    columns = [relation.layout.column("k")]
    assert part.gather(columns, page, row)[0].equals(run.gather(columns, page + np.int32(2), row)[0])
    del part, run
    reader.close()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 10**6), max_size=30), st.integers(1, 20_000), st.integers(1, 4))
def test_runs_come_in_order_with_their_own_rows(
    relation: Relation, numbers: list[int], run_bytes: int, buffers: int
) -> None:
    pages = np.unique(np.array(numbers, np.intp) % relation.num_pages)
    run_bytes = max(run_bytes, 1024)
    disk = SimulatedDisk(seek_s=1, transfer_s=1)
    reader = relation.reader(run_bytes=run_bytes, disk=disk, buffers=buffers)
    cuts = relation.table.cut_runs(pages, run_bytes)
    seen, keys = [], []
    for run in reader.read_all(pages[a:b] for a, b in pairwise(cuts)):
        seen += run.pages.tolist()
        keys += [key for i in range(run.pages.size) for key in run.batch(i, ["k"]).column(0).to_pylist()]
    reader.close()
    assert seen == pages.tolist()
    table = relation.table
    assert keys == [key for page in pages for key in range(table.first_code[page], table.last_code[page] + 1)]
    assert disk.counts.pages == pages.size
    assert disk.counts.requests == cuts.size - 1
    assert disk.counts.bytes == table.nbytes[pages].sum()
    neighbours = int((np.diff(pages) == 1).sum()) if pages.size else 0
    assert disk.counts.seeks == pages.size - neighbours
    assert open_files() == set()


@settings(deadline=None, max_examples=30)
@given(
    numbers=st.lists(st.integers(0, 10**6), max_size=40),
    run_bytes=st.integers(1024, 30_000),
    seek_s=st.sampled_from([0, 3, 8]),
    disk=st.sampled_from(["simulated", "auto"]),
)
def test_planned_sequences_are_read_whole_and_give_the_wanted_pages(
    relation: Relation, numbers: list[int], run_bytes: int, seek_s: int, disk: str
) -> None:
    pages = np.unique(np.array(numbers, np.intp) % min(relation.num_pages, 60))
    slots = PageSlots.of(relation.table)
    costs = DiskCosts(seek_s=seek_s, transfer_s_per_page=1)
    plan = optimal_plan(slots, pages, costs, most_bytes=run_bytes)
    used = SimulatedDisk(seek_s=seek_s, transfer_s=1) if disk == "simulated" else relation.disk(disk)
    reader = relation.reader(run_bytes=run_bytes, disk=used)
    assert reader.costs == used.costs
    seen, keys = [], []
    for run in reader.read_all(plan):
        seen += run.pages.tolist()
        keys += [key for i in range(run.pages.size) for key in run.batch(i, ["k"]).column(0).to_pylist()]
        page = np.arange(run.pages.size, dtype=np.int32)
        firsts = run.gather([relation.layout.column("k")], page, np.zeros_like(page))[0]
        assert firsts.to_pylist() == relation.table.first_code[run.pages].tolist()
    reader.close()
    table = relation.table
    assert seen == pages.tolist()
    assert keys == [key for page in pages for key in range(table.first_code[page], table.last_code[page] + 1)]
    ranges = [(int(sequence.pages[0]), int(sequence.pages[-1])) for sequence in plan]
    assert used.counts.requests == len(plan)
    assert used.counts.pages == sum(last - first + 1 for first, last in ranges)
    assert used.counts.bytes == sum(int(table.nbytes[first : last + 1].sum()) for first, last in ranges)
    assert used.counts.seeks == len(plan) - sum(a[1] + 1 == b[0] for a, b in pairwise(ranges))
    if isinstance(used, SimulatedDisk):
        assert used.now_s == plan.cost_s - seek_s * (len(plan) - used.counts.seeks)


def test_pages_that_an_update_replaced_are_read_across(relation: Relation) -> None:
    """The rewritten page lies in a file of its own; the hole it left is no reason for another request."""
    middle = int(relation.table.first_code[5])
    with scratch_folder() as folder:
        built = Relation.build(relation.scan().read_all(), folder / "r", key="k", page_bytes=1024)
        updated = built.update(deletes=[middle])
        disk = SimulatedDisk(seek_s=10, transfer_s=1)
        reader = updated.reader(run_bytes=1 << 20, disk=disk)
        plan = optimal_plan(PageSlots.of(updated.table), np.arange(9), disk.costs, most_bytes=1 << 20)
        assert [sequence.pages.tolist() for sequence in plan] == [[0, 1, 2, 3, 4, 6, 7, 8], [5]]
        rows = [row for run in reader.read_all(plan) for i in range(run.pages.size) for row in run.batch(i)["k"]]
        reader.close()
        assert sorted(row.as_py() for row in rows) == [
            k for k in range(int(built.table.last_code[8]) + 1) if k != middle
        ]
        assert (disk.counts.requests, disk.counts.seeks, disk.counts.pages) == (2, 2, 10)
        assert disk.counts.bytes == built.table.nbytes[:9].sum() + updated.table.nbytes[5]


def test_only_wanted_pages_are_checked(relation: Relation) -> None:
    path = relation.data_files[0]
    whole = path.read_bytes()
    offset = int(relation.table.offset[7])
    try:
        path.write_bytes(whole[: offset + 50] + bytes([whole[offset + 50] ^ 4]) + whole[offset + 51 :])
        opened = Relation.open(relation.path)
        reader = opened.reader(run_bytes=8192, disk="buffered")
        reader.ask(PageSequence(np.array([5, 6, 8]), 4))
        assert reader.take().pages.tolist() == [5, 6, 8]
        reader.give_back()
        assert np.flatnonzero(opened.table.segments[0].verified).tolist() == [5, 6, 8]
        reader.ask(PageSequence(np.array([6, 7, 9]), 4))
        with pytest.raises(CorruptRelation, match="page 7 "):
            reader.take()
        reader.close()
        assert np.flatnonzero(opened.table.segments[0].verified).tolist() == [5, 6, 8]
    finally:
        path.write_bytes(whole)


def test_runs_that_cannot_be_read_are_refused_at_once(relation: Relation) -> None:
    reader = relation.reader(run_bytes=4096)
    with pytest.raises(InvalidArgument, match="2 pages from 3 to 5 are not adjacent on disk"):
        reader.ask(np.array([3, 5]))
    with pytest.raises(
        InvalidArgument, match=r"pages from 3 to 30 span \d+ bytes, but the reader's runs have at most 4096"
    ):
        reader.ask(PageSequence(np.array([3, 30]), 28))
    assert (reader.room, reader.waiting) == (2, 0)
    reader.close()


def test_counts_of_a_scan_are_the_same_every_time(relation: Relation) -> None:
    counts = []
    for _ in range(2):
        disk = SimulatedDisk(seek_s=1, transfer_s=0.5)
        assert relation.scan(disk=disk).read_all().num_rows == ROWS
        counts.append((disk.counts, disk.now_s))
    assert counts[0] == counts[1]
    assert (counts[0][0].pages, counts[0][0].seeks, counts[0][0].bytes) == (relation.num_pages, 1, relation.nbytes)
    assert counts[0][1] == 1 + 0.5 * relation.num_pages


def test_requests_are_counted_when_they_are_made_not_when_the_thread_gets_to_them(relation: Relation) -> None:
    started, go_on = threading.Event(), threading.Event()

    class WaitingDisk(SimulatedDisk):
        def fetch(self, *args: object, **kwargs: object) -> int:
            started.set()
            go_on.wait(10)
            return super().fetch(*args, **kwargs)  # type: ignore[arg-type]

    disk = WaitingDisk(seek_s=1, transfer_s=0.5)
    reader = relation.reader(run_bytes=4096, disk=disk, buffers=2)
    reader.ask(np.arange(2))
    reader.ask(np.arange(5, 7))
    started.wait(10)
    assert (disk.counts.requests, disk.counts.pages, disk.now_s) == (2, 4, 4.0)
    go_on.set()
    assert [reader.take().pages.tolist() for _ in range(2)] == [[0, 1], [5, 6]]
    assert (disk.counts.requests, disk.counts.pages) == (2, 4)
    reader.close()


def test_scanned_batches_stay_valid_while_later_runs_are_read(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Relation.read_pages, "__kwdefaults__", {"run_bytes": 4096, "disk": "buffered"})
    batches = list(relation.scan())
    assert len(batches) > 50
    assert [k for batch in batches for k in batch["k"].to_pylist()] == list(range(ROWS))
    assert all(
        v == (str(k) if k % 9 else None)
        for b in batches
        for k, v in zip(*map(list, b.to_pydict().values()), strict=True)
    )


@pytest.mark.parametrize("disk", ["buffered", "auto"])
def test_columns_gathered_from_runs_are_those_of_the_batch(relation: Relation, disk: str) -> None:
    rng = np.random.default_rng(4)
    for run in relation.read_pages(np.arange(5, 40), run_bytes=8192, disk=disk):
        page = rng.integers(0, run.pages.size, 50).astype(np.int32)
        row = (rng.random(50) * run.rows[page]).astype(np.int32)
        gathered = run.gather(relation.layout.columns, page, row)
        for column, array in zip(relation.layout.columns, gathered, strict=True):
            array.validate(full=True)
            wanted = [
                run.batch(int(p), [column.name]).column(0)[int(r)].as_py() for p, r in zip(page, row, strict=True)
            ]
            assert array.to_pylist() == wanted
