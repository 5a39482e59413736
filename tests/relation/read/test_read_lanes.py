"""Lanes read every request, by any lane, and return the runs in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.relation.read.disk import ALIGNMENT
from semistream.relation.read.read_lanes import ReadLanes

FILE_BYTES = 6 << 20
DEPTH = 3


def threads_of_lanes() -> set[threading.Thread]:
    """Lanes alive now: an operator that another test has left to the collector may have some."""
    return {thread for thread in threading.enumerate() if thread.name == "semistream-lane"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, np.ndarray]]:
    content = np.random.default_rng(0).integers(256, size=FILE_BYTES, dtype=np.uint8)
    path: Path = tmp_path_factory.mktemp("lanes") / "file"
    path.write_bytes(content.tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor, content
    os.close(descriptor)


BYTES = st.one_of(st.integers(1, 3 * ALIGNMENT), st.integers((1 << 20) - 2, (1 << 20) + 2), st.integers(1, 3 << 20))
RUNS = st.lists(st.lists(st.tuples(st.integers(0, FILE_BYTES), BYTES), min_size=1, max_size=5), min_size=1, max_size=8)


@given(runs=RUNS)
@settings(max_examples=60, deadline=None)
def test_all_runs_are_read_as_they_are_in_the_file(file: tuple[int, np.ndarray], runs: list) -> None:
    descriptor, content = file
    before = threads_of_lanes()
    with closing(ReadLanes(DEPTH)) as lanes:
        under_way = []
        for run in runs + [[]] * DEPTH:
            if len(under_way) == DEPTH or (under_way and not run):
                asked, buffers, reads = under_way.pop(0)
                wanted = [content[begin : begin + nbytes] for begin, nbytes in asked]
                assert reads.wait() == [part.size for part in wanted]  # less behind the file's end
                for buffer, part in zip(buffers, wanted, strict=True):
                    assert np.array_equal(buffer[: part.size], part)
                    assert not buffer[part.size :].any()
            if run:
                buffers = [np.zeros(nbytes, np.uint8) for _, nbytes in run]
                reads = lanes.start(
                    [
                        (descriptor, buffer.ctypes.data, nbytes, begin)
                        for (begin, nbytes), buffer in zip(run, buffers, strict=True)
                    ]
                )
                under_way.append((run, buffers, reads))
        assert not under_way
    assert threads_of_lanes() <= before


def test_a_long_run_is_cut_where_direct_reads_can_begin(file: tuple[int, np.ndarray]) -> None:
    descriptor, content = file
    started = []

    class Noted(ReadLanes):
        def start(self, reads):
            lane_reads = super().start(reads)
            started.extend(lane_reads.parts)
            return lane_reads

    buffer = np.zeros(2 << 20, np.uint8)
    with closing(Noted(1)) as lanes:
        assert lanes.start([(descriptor, buffer.ctypes.data, buffer.size, 0)]).wait() == [buffer.size]
        first, second = (lane._requests[0, 0] for lane, _ in started)
    assert first[2] + second[2] == buffer.size
    assert second[1] - first[1] == second[3] - first[3] == first[2]
    assert first[2] % ALIGNMENT == 0
    assert 0.4 < first[2] / buffer.size < 0.6
    assert np.array_equal(buffer, content[: buffer.size])


def test_what_cannot_be_read_gives_nothing(file: tuple[int, np.ndarray]) -> None:
    buffer = np.zeros(4 << 20, np.uint8)
    with closing(ReadLanes(2)) as lanes:
        refused = lanes.start([(10**6, buffer.ctypes.data, buffer.size, 0)])
        fine = lanes.start([(file[0], buffer.ctypes.data, ALIGNMENT, 0)])
        assert refused.wait() == [0]
        assert fine.wait() == [ALIGNMENT]


def test_lanes_end_with_reads_under_way(file: tuple[int, np.ndarray]) -> None:
    buffers = [np.zeros(4 << 20, np.uint8) for _ in range(DEPTH)]
    before = threads_of_lanes()
    lanes = ReadLanes(DEPTH)
    for buffer in buffers:
        lanes.start([(file[0], buffer.ctypes.data, buffer.size, 0)])
    assert threads_of_lanes() > before
    lanes.close()
    lanes.close()
    assert threads_of_lanes() <= before
