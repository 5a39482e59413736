"""Measuring a disk: a made-up clock gives back known costs, and the file is always removed."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import CalibrationError, InvalidArgument
from semistream.relation import DiskCosts
from semistream.relation.read import disk as disks
from semistream.relation.read.disk import ALIGNMENT
from semistream.tuning.calibration.disk_probe import (
    ROUNDS_AT_ONCE,
    SIZES,
    DiskProbe,
    DiskProber,
    ProbeFile,
    request_times,
    time_requests,
)

KIB = 1 << 10
SMALL = (4 * KIB, 16 * KIB, 64 * KIB)


def probe_disk(folder: Path, *, parts: int = 1, **options: Any) -> DiskProbe:
    """Measure the disk in so many parts."""
    with closing(DiskProber(folder, **options)) as prober:
        for _ in range(parts):
            prober.probe(1 / parts)
        return prober.result


def no_requests(sizes: Sequence[int]) -> dict[int, list[float]]:
    return {nbytes: [] for nbytes in sizes}


class MadeUpDisk:
    """Takes ``seek_s`` and ``byte_s`` for each byte of a request, and ``busy`` times as long for some of them."""

    def __init__(self, seek_s: float, byte_s: float, *, busy: float = 1.0, seed: int = 0) -> None:
        self._seek_s, self._byte_s, self._busy = seek_s, byte_s, busy
        self._random = np.random.default_rng(seed)
        self.now_s = 0.0
        self.requests: list[tuple[int, int]] = []

    def read(self, offset: int, nbytes: int) -> float:
        self.requests.append((offset, nbytes))
        slow = self._busy if self._random.random() < 0.3 else 1.0
        seconds = slow * (self._seek_s + self._byte_s * nbytes)
        self.now_s += seconds
        return seconds


@given(seek_s=st.floats(1e-6, 2e-2), byte_s=st.floats(1e-11, 1e-7), busy=st.floats(1, 50), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_seek_and_transfer_are_found_although_the_disk_is_busy_at_times(
    seek_s: float, byte_s: float, busy: float, seed: int
) -> None:
    disk, random = MadeUpDisk(seek_s, byte_s, busy=busy, seed=seed), np.random.default_rng(seed)
    taken = no_requests(SIZES)
    time_requests(disk.read, 1 << 28, taken, limit_s=math.inf, random=random, clock=lambda: disk.now_s)
    times = request_times(taken)
    assert [each.nbytes for each in times] == list(SIZES)
    fit = DiskCosts.fitted((each.nbytes, each.seconds) for each in times)
    assert fit.seek_s == pytest.approx(seek_s, rel=1e-3)
    assert fit.transfer_s_per_byte == pytest.approx(byte_s, rel=1e-3)


def test_requests_are_aligned_and_within_the_file_and_all_over_it() -> None:
    disk, file_bytes = MadeUpDisk(1e-4, 1e-9), 1 << 20
    random = np.random.default_rng(0)
    time_requests(disk.read, file_bytes, no_requests(SMALL), limit_s=1.0, random=random, clock=lambda: 0.0)
    for nbytes in SMALL:
        offsets = [offset for offset, size in disk.requests if size == nbytes]
        assert all(offset % ALIGNMENT == 0 and offset + nbytes <= file_bytes for offset in offsets)
        assert max(offsets) > 0.9 * (file_bytes - nbytes)
        assert min(offsets) < 0.1 * file_bytes


def test_a_slow_disk_is_asked_no_longer_than_the_limit_but_for_a_few_rounds() -> None:
    slow, fast = MadeUpDisk(1.0, 0.0), MadeUpDisk(0.01, 0.0)
    shares: list[float] = []
    for disk, requests in ((slow, 5), (fast, 34)):
        taken = no_requests(SMALL)
        time_requests(
            disk.read,
            1 << 20,
            taken,
            limit_s=1.0,
            random=np.random.default_rng(0),
            clock=lambda disk=disk: disk.now_s,
            progress=shares.append,
        )
        assert {each.requests for each in request_times(taken)} == {requests}
    assert shares[0] == 0
    assert shares[-1] == 1
    assert all(0 <= share <= 1 for share in shares)


def test_a_real_disk_is_measured_and_nothing_stays_behind(tmp_path: Path) -> None:
    shares: list[float] = []
    probe = probe_disk(tmp_path, file_bytes=1 << 20, sizes=SMALL, limit_s=0.05, progress=shares.append)
    assert [each.nbytes for each in probe.times] == list(SMALL)
    assert all(each.seconds > 0 and each.requests >= 5 for each in probe.times)
    assert probe.costs == DiskCosts.fitted((each.nbytes, each.seconds) for each in probe.times)
    assert probe.file_bytes == 1 << 20
    assert (probe.note is None) == probe.direct
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_slow_in_one_part_of_three_is_measured_correctly() -> None:
    taken, random = no_requests(SIZES), np.random.default_rng(0)
    for slow in (1.0, 3.0, 1.0):
        disk = MadeUpDisk(slow * 1e-4, slow * 1e-9)
        time_requests(
            disk.read, 1 << 28, taken, share=1 / 3, limit_s=math.inf, random=random, clock=lambda disk=disk: disk.now_s
        )
    fit = DiskCosts.fitted((each.nbytes, each.seconds) for each in request_times(taken))
    assert (fit.seek_s, fit.transfer_s_per_byte) == pytest.approx((1e-4, 1e-9), rel=1e-6)
    assert {each.requests for each in request_times(taken)} == {3 * 134}, "as many in each part"


def test_parts_add_up_and_progress_goes_on(tmp_path: Path) -> None:
    shares: list[float] = []
    options = {"file_bytes": 1 << 20, "sizes": SMALL, "limit_s": 1e-9}
    whole = probe_disk(tmp_path, **options)
    parts = probe_disk(tmp_path, parts=3, progress=shares.append, **options)
    assert {each.requests for each in parts.times} == {3 * each.requests for each in whole.times}, "the least of each"
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_without_direct_reads_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "_takes_direct", lambda path: False)
    dropped: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, offset, length, advice: dropped.append(advice), raising=False)
    probe = probe_disk(tmp_path, file_bytes=1 << 20, sizes=SMALL, limit_s=0.05)
    assert not probe.direct
    assert probe.note is not None
    assert "O_DIRECT" in probe.note
    rounds = sum(each.requests for each in probe.times) + 2 * ROUNDS_AT_ONCE
    assert dropped == [os.POSIX_FADV_DONTNEED] * rounds


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0


@pytest.mark.parametrize("when", [0, 1, 2, 20])
def test_nothing_stays_behind_when_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """While the first piece is written, while the next one is, and while requests are timed."""
    calls = 0

    def interrupt(real: object) -> object:
        def call(*args: object) -> object:
            nonlocal calls
            calls += 1
            if calls > when:
                raise KeyboardInterrupt
            return real(*args)

        return call

    monkeypatch.setattr(os, "fsync", interrupt(os.fsync))
    monkeypatch.setattr(os, "preadv", interrupt(os.preadv))
    before = open_files()
    with pytest.raises(KeyboardInterrupt):
        probe_disk(tmp_path, file_bytes=1 << 20, sizes=SMALL, limit_s=0.05)
    assert list(tmp_path.iterdir()) == []
    assert open_files() == before


def test_the_file_has_no_name_while_it_is_read(tmp_path: Path) -> None:
    with ProbeFile(tmp_path, 1 << 20, least_bytes=1 << 16, random=np.random.default_rng(0)) as file:
        assert file.nbytes == 1 << 20
        assert list(tmp_path.iterdir()) == []


def test_where_writing_is_slow_the_file_is_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semistream.tuning.calibration.disk_probe._PIECE_BYTES", 1 << 16)
    now = iter(range(0, 10_000, 4))
    with ProbeFile(
        tmp_path, 1 << 20, least_bytes=1 << 17, random=np.random.default_rng(0), clock=lambda: float(next(now))
    ) as file:
        assert file.nbytes == 4 << 16  # the first piece, one to have the least, and two until 10 seconds are over


def with_free(free: int) -> object:
    return lambda path: shutil._ntuple_diskusage(10**12, 10**12 - free, free)


def test_little_room_makes_the_file_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", with_free(3 << 20))
    probe = probe_disk(tmp_path, file_bytes=1 << 20, sizes=SMALL, limit_s=0.01)
    assert probe.file_bytes == (3 << 20) // 4


def test_too_little_room_names_the_free_and_the_needed_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", with_free(100_000_000))
    with pytest.raises(CalibrationError, match=r"100 MB free, and measuring its disk takes 134 MB: a file of 33.6 MB"):
        probe_disk(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CalibrationError, match="Make room"):
        probe_disk(tmp_path, file_bytes=1 << 20, sizes=SMALL)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refused)
    with pytest.raises(CalibrationError, match=r"cannot be written to \(Permission denied\).*another folder"):
        probe_disk(tmp_path, file_bytes=1 << 20, sizes=SMALL)


def test_a_file_too_small_for_its_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="file_bytes is 4096"):
        probe_disk(tmp_path, file_bytes=4096, sizes=SMALL)
