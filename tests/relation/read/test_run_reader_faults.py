"""Reading runs of pages ahead: errors reach the caller, damaged pages are named, and nothing is left open."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.kernels.array_types import Bytes
from semistream.relation import (
    BufferedDisk,
    Relation,
    RunReader,
    SimulatedDisk,
)
from semistream.relation.read.disk import ReadRequest
from tests.relation.read.conftest import open_files, threads


class FailingDisk(BufferedDisk):
    """Fails after some requests."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.good = good

    def request(self, path: Path, offset: int, nbytes: int, *, pages: int) -> ReadRequest:
        self.good -= 1
        read = super().request(path, offset, nbytes, pages=pages)
        return FailedRequest(*read) if self.good < 0 else read


class FailedRequest(ReadRequest):
    plain = False

    def __call__(self, into: Bytes) -> int:
        raise OSError(5, f"Input/output error of {into.size} bytes")


def test_error_of_the_thread_reaches_the_caller_at_its_run(relation: Relation) -> None:
    taken = 0

    def drain() -> None:
        nonlocal taken
        for _ in relation.read_pages(np.arange(30), run_bytes=4096, disk=FailingDisk(1)):
            taken += 1

    with pytest.raises(OSError, match="Input/output error"):
        drain()
    assert taken == 1
    assert (threads(), open_files()) == ([], set())
    with pytest.raises(OSError, match="Input/output error"):
        relation.scan(disk=FailingDisk(0)).read_all()
    assert (threads(), open_files()) == ([], set())


def test_pages_that_were_checked_before_are_read_in_lanes_and_are_the_same(relation: Relation) -> None:
    reader = relation.reader(run_bytes=4096, buffers=3, disk="buffered")
    runs = [np.arange(first, first + 2) for first in range(0, 30, 2)]
    seen = [[[run.batch(i).to_pylist() for i in range(2)] for run in reader.read_all(runs)] for _ in range(2)]
    assert seen[0] == seen[1]
    assert any(thread.name == "semistream-lane" for thread in threading.enumerate())
    reader.ask(runs[0])
    reader.close()
    assert (threads(), open_files()) == ([], set())


class LostDescriptorDisk(BufferedDisk):
    """Gives descriptors that lanes cannot read from."""

    def _descriptor(self, path: Path) -> int:
        return super()._descriptor(path) if self.good else 10**6

    good = True


def test_failed_lane_reads_are_repeated_to_name_the_cause(relation: Relation) -> None:
    path = relation.data_files[0]
    whole = path.read_bytes()
    disk = LostDescriptorDisk()
    reader = relation.reader(run_bytes=4096, buffers=2, disk=disk)
    for run in (np.arange(2), np.arange(2, 4)):
        reader.ask(run)
        reader.take()
        reader.give_back()
    reader.ask(np.arange(4, 6))
    reader.take()
    reader.give_back()
    disk.good = False
    reader.ask(np.arange(2))  # with a seek: not in a lane
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.take()
    reader.give_back()
    reader.ask(np.arange(2, 4))
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.take()
    reader.give_back()
    disk.good = True
    try:
        path.write_bytes(whole[: int(relation.table.offset[5])])
        reader.ask(np.arange(4, 6))
        with pytest.raises(CorruptRelation, match="truncated"):
            reader.take()
    finally:
        path.write_bytes(whole)
        reader.close()
    assert (threads(), open_files()) == ([], set())


def test_abandoned_scan_leaves_no_thread_and_no_file(relation: Relation) -> None:
    runs = relation.read_pages(np.arange(relation.num_pages), run_bytes=4096)
    next(runs)
    assert 1 <= len(threads()) <= 2  # a lane too, if pages were checked before
    runs.close()
    assert (threads(), open_files()) == ([], set())
    reader = relation.scan()
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    assert (threads(), open_files()) == ([], set())


def test_close_with_runs_under_way_leaves_nothing(relation: Relation) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    reader = relation.reader(run_bytes=4096, buffers=3)
    for first in (0, 10, 20):
        reader.ask(np.arange(first, first + 2))
    assert (reader.room, reader.waiting) == (0, 3)
    assert reader.take().pages.tolist() == [0, 1]
    reader.give_back()
    assert (reader.room, reader.waiting) == (1, 2)
    reader.close()
    reader.close()
    assert threads() == []
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_reader_needs_a_buffer_and_tells_its_memory(relation: Relation) -> None:
    with pytest.raises(InvalidArgument, match="buffers is 0"):
        relation.reader(run_bytes=4096, buffers=0)
    assert RunReader.memory_bytes(4096, 3) == 3 * 8192
    assert RunReader.memory_bytes(1, 1) == 8192


def test_damaged_page_is_named_by_number_file_and_bytes(relation: Relation) -> None:
    path = relation.data_files[0]
    whole = path.read_bytes()
    offset, nbytes = int(relation.table.offset[7]), int(relation.table.nbytes[7])
    relation.scan().read_all()  # a handle may trust what it has read once, but not verify
    try:
        path.write_bytes(whole[: offset + 50] + bytes([whole[offset + 50] ^ 4]) + whole[offset + 51 :])
        opened, message = (
            Relation.open(relation.path),
            rf"page 7 \(.*{path.name}, bytes {offset} to {offset + nbytes}\)",
        )
        assert sum(run.pages.size for run in opened.read_pages(np.arange(8, 20))) == 12
        for _ in range(2):
            with pytest.raises(CorruptRelation, match=message):
                list(opened.read_pages(np.arange(20)))
        with pytest.raises(CorruptRelation, match=message):
            opened.part(int(relation.table.first_code[7]), int(relation.table.last_code[7])).verify()
        with pytest.raises(CorruptRelation, match=message):
            relation.verify()
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("disk", ["auto", "simulated"])
def test_one_buffer_is_read_to_by_the_caller_when_the_run_is_taken(relation: Relation, disk: str) -> None:
    used = SimulatedDisk(seek_s=1, transfer_s=1) if disk == "simulated" else relation.disk(disk)
    reader, threads = relation.reader(run_bytes=relation.largest_page, disk=used, buffers=1), threading.active_count()
    runs = [np.array([page]) for page in (3, 4, 1)]
    found = [(run.pages.tolist(), int(run.rows.sum())) for run in reader.read_all(runs)]
    assert found == [([page], int(relation.table.rows[page])) for page in (3, 4, 1)]
    assert threading.active_count() == threads
    assert (used.counts.requests, used.counts.seeks) == (3, 2)
    reader.close()
