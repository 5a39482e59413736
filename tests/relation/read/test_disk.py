"""Disks give the same bytes and count every request exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.relation import BufferedDisk, DirectDisk, Disk, DiskCosts, SimulatedDisk
from semistream.relation.read.disk import (
    ALIGNMENT,
    SOLID_STATE,
    allocate_buffer,
    allocate_buffers,
    buffer_bytes,
    open_disk,
)

SIZE = 3 * ALIGNMENT + 777
HUGE = 2 << 20
MAPPINGS = Path("/proc/self/smaps")
CONTENT = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8).tobytes()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("disk") / "content"
    path.write_bytes(CONTENT)
    (path.parent / "other").write_bytes(CONTENT[::-1])
    return path


@pytest.fixture(scope="module", params=["buffered", "direct", "simulated"])
def disk(request: pytest.FixtureRequest, file: Path) -> Iterator[Disk]:
    if request.param == "direct" and not isinstance(open_disk("auto", file), DirectDisk):
        pytest.skip("the file system takes no O_DIRECT")
    made = SimulatedDisk(seek_s=2, transfer_s=3) if request.param == "simulated" else open_disk(request.param, file)
    yield made
    made.close()


def _read(disk: Disk, path: Path, offset: int, nbytes: int, pages: int = 1) -> bytes:
    buffer = allocate_buffer(buffer_bytes(nbytes))
    at = disk.read(path, offset, nbytes, pages=pages, into=buffer)
    return buffer[at : at + nbytes].tobytes()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_range_is_read(disk: Disk, file: Path, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, SIZE))
    nbytes = data.draw(st.integers(0, SIZE - offset))
    assert _read(disk, file, offset, nbytes) == CONTENT[offset : offset + nbytes]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, SIZE + ALIGNMENT), st.integers(1, SIZE))
def test_range_beyond_the_end_is_a_truncated_file(disk: Disk, file: Path, offset: int, over: int) -> None:
    nbytes = max(SIZE - offset, 0) + over
    with pytest.raises(CorruptRelation, match="content ends at byte"):
        _read(disk, file, offset, nbytes)


def test_missing_file_is_named(disk: Disk, file: Path) -> None:
    with pytest.raises(CorruptRelation, match="absent is missing"):
        _read(disk, file.parent / "absent", 0, 1)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.tuples(st.booleans(), st.integers(0, 9))), st.integers(1, 9)), max_size=15
    )
)
def test_counts_are_exact_and_time_is_a_function_of_them(
    file: Path, requests: list[tuple[tuple[bool, int] | None, int]]
) -> None:
    """A request goes on where the last one ended (None), or starts in one of two files at some byte."""
    simulated, buffered = SimulatedDisk(seek_s=0.25, transfer_s=0.5), BufferedDisk()
    head: tuple[Path, int] | None = None
    seeks = 0
    for start, nbytes in requests:
        path, offset = head or (file, 0)
        if start is not None:
            path, offset = (file.parent / "other" if start[0] else file), start[1]
        for disk in (simulated, buffered):
            _read(disk, path, offset, nbytes, pages=nbytes + 1)
        seeks += head != (path, offset)
        head = (path, offset + nbytes)
    counts = simulated.counts
    assert counts == buffered.counts
    assert (counts.requests, counts.seeks) == (len(requests), seeks)
    assert counts.bytes == sum(nbytes for _, nbytes in requests) == counts.pages - len(requests)
    assert counts.pages_sequential == counts.pages - seeks
    assert simulated.now_s == 0.25 * seeks + 0.5 * counts.pages
    simulated.close()
    buffered.close()


def test_direct_disk_counts_what_was_asked_for_not_whole_blocks(disk: Disk, file: Path) -> None:
    before = disk.counts.bytes
    _read(disk, file, 100, 50)
    assert disk.counts.bytes - before == 50


def test_closed_disk_holds_no_file_and_opens_it_again(file: Path) -> None:
    disk = BufferedDisk()
    before = set(Path("/proc/self/fd").iterdir())
    _read(disk, file, 0, 10)
    assert len(set(Path("/proc/self/fd").iterdir()) - before) == 1
    disk.close()
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert _read(disk, file, 0, 10) == CONTENT[:10]
    disk.close()
    disk.close()


def test_disks_by_name(file: Path) -> None:
    own = BufferedDisk()
    assert open_disk(own, file) is own
    assert type(open_disk("buffered", file)) is BufferedDisk
    assert type(open_disk("auto", file)) in (BufferedDisk, DirectDisk)
    assert type(open_disk("auto", file.parent / "absent")) is BufferedDisk
    with pytest.raises(InvalidArgument, match="disk is 'ssd'; give 'auto', 'direct', 'buffered' or a Disk"):
        open_disk("ssd", file)


@pytest.mark.parametrize(("seek_s", "transfer_s"), [(-1, 0), (0, -1), (float("nan"), 0)])
def test_simulated_times_cannot_be_negative(seek_s: float, transfer_s: float) -> None:
    with pytest.raises(InvalidArgument, match="give 0 or more seconds"):
        SimulatedDisk(seek_s=seek_s, transfer_s=transfer_s)


@given(st.integers(0, 10 * ALIGNMENT), st.integers(0, 3 * ALIGNMENT))
def test_buffer_takes_its_bytes_wherever_they_start(nbytes: int, offset: int) -> None:
    start, length = DirectDisk()._range(offset, nbytes)
    assert start % ALIGNMENT == length % ALIGNMENT == 0
    assert length <= buffer_bytes(nbytes)
    assert start <= offset <= offset + nbytes <= start + length


def test_costs_for_plans_stay_as_they_are_whatever_requests_take(disk: Disk, file: Path) -> None:
    before = disk.costs
    for i in range(100):
        _read(disk, file, i % 7, 1 + 5000 * (i % 2))
    assert disk.costs is before
    simulated = DiskCosts(seek_s=2, transfer_s_per_page=3, follows=0.0)
    assert before == (simulated if isinstance(disk, SimulatedDisk) else SOLID_STATE)
    assert DirectDisk(costs=simulated).costs == simulated


def test_own_costs_of_a_simulated_disk_are_the_time_on_its_clock(file: Path) -> None:
    disk = SimulatedDisk(seek_s=0.25, transfer_s=0.5)
    _read(disk, file, 0, 100, pages=7)
    _read(disk, file, 500, 10, pages=1)
    assert disk.now_s == disk.costs.request_s(100, 7) + disk.costs.request_s(10, 1)
    assert disk.now_s == disk.costs.request_s(110, 8, requests=2)
    disk.close()


@pytest.mark.parametrize("nbytes", [1, 4096, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 4096])
def test_buffers_are_zeroed_aligned_and_of_their_size(nbytes: int) -> None:
    buffers = [allocate_buffer(nbytes) for _ in range(3)]
    for number, buffer in enumerate(buffers):
        assert buffer.size == nbytes
        assert not buffer.any()
        assert buffer.ctypes.data % (HUGE if nbytes >= HUGE else ALIGNMENT) == 0
        buffer[:] = number + 1
    assert [set(np.unique(buffer).tolist()) for buffer in buffers] == [{1}, {2}, {3}], "they share no memory"


@pytest.mark.skipif(not MAPPINGS.exists(), reason="the system does not tell of mappings")
def test_large_buffers_ask_for_huge_pages_that_they_can_get() -> None:
    buffer = allocate_buffer(8 * HUGE + 4096)
    begin, end = _huge_mapping(buffer.ctypes.data)
    assert end - begin == 8 * HUGE, "what is whole of it is to lie in huge pages"


def _huge_mapping(address: int) -> tuple[int, int]:
    """The bounds of the mapping that begins at an address, which is to lie in huge pages."""
    lines = iter(MAPPINGS.read_text().splitlines())
    mapping = next(line for line in lines if line.startswith(f"{address:x}-"))
    addresses, rights = mapping.split()[:2]
    flags = next(line for line in lines if line.startswith("VmFlags:")).split()
    assert "hg" in flags
    assert rights == "rw-p", "mappings that are shared get none"
    begin, end = (int(address, 16) for address in addresses.split("-"))
    return begin, end


def test_buffers_of_a_block_are_aligned_and_share_no_memory() -> None:
    sizes = [100_000, 0, HUGE, 1, 4096]
    buffers = allocate_buffers(sizes)
    assert [buffer.size for buffer in buffers] == sizes
    for number, buffer in enumerate(buffers):
        assert buffer.ctypes.data % ALIGNMENT == 0
        buffer[:] = number + 1
    assert [set(np.unique(buffer).tolist()) for buffer in buffers] == [{1}, set(), {3}, {4}, {5}]


@pytest.mark.skipif(not MAPPINGS.exists(), reason="the system does not tell of mappings")
def test_small_buffers_share_huge_pages_with_what_comes_behind_them() -> None:
    runs = allocate_buffers([700_000, 700_000, 3 * HUGE])[:2]
    begin, end = _huge_mapping(runs[0].ctypes.data)
    assert end - begin == 3 * HUGE
    assert all(begin <= run.ctypes.data and run.ctypes.data + run.size <= end for run in runs)
