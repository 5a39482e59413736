"""Copying chosen rows out of raw pages, against plain Python indexing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.relation.read.kernels.gather import (
    gather_bits,
    gather_bytes,
    gather_columns,
    gather_lengths,
    gather_wide,
)

PAGES = st.lists(st.lists(st.binary(max_size=6), min_size=1, max_size=9), min_size=1, max_size=4)


def _chosen(data: st.DataObject, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rows = [(page, row) for page, size in enumerate(sizes) for row in range(size)]
    chosen = data.draw(st.lists(st.sampled_from(rows), max_size=20))
    return np.array([p for p, _ in chosen], np.int32), np.array([r for _, r in chosen], np.int32)


@settings(deadline=None)
@given(PAGES, st.data(), st.sampled_from([np.int32, np.int64]))
def test_strings_are_copied_byte_for_byte(pages: list[list[bytes]], data: st.DataObject, offset_type: type) -> None:
    width = np.dtype(offset_type).itemsize
    run, starts, data_starts = b"", [], []
    for strings in pages:
        starts.append(len(run) // width)
        run += np.concatenate([[0], np.cumsum([len(s) for s in strings])]).astype(offset_type).tobytes()
        data_starts.append(len(run) if any(strings) else -1)
        run += b"".join(strings)
        run += b"\xee" * (-len(run) % 8)
    buffer = np.frombuffer(run, np.uint8)
    page, row = _chosen(data, [len(strings) for strings in pages])
    ends = np.empty(page.size + 1, offset_type)
    offsets, at = buffer.view(offset_type), np.array(starts, np.int64)
    out = np.empty(int(gather_lengths(offsets, at, page, row, ends)), np.uint8)
    gather_bytes(buffer, offsets, at, np.array(data_starts, np.int64), page, row, ends, out)
    wanted = [pages[p][r] for p, r in zip(page, row, strict=True)]
    assert [out[a:b].tobytes() for a, b in pairwise(ends)] == wanted


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_columns_of_every_width_are_copied(dtype: type) -> None:
    values, width = np.arange(100, dtype=dtype), np.dtype(dtype).itemsize
    positions = np.array([[-1, 10, 20], [-1, 50, 60]]) * width  # by page and buffer
    page, row = np.array([1, 0, 1], np.int32), np.array([0, 5, 39], np.int32)
    out = np.zeros((2, 5), dtype)
    gather_columns(values, positions, np.array([2, 1]), page, row, out[:, 1:4])
    assert out.tolist() == [[0, 60, 25, 99, 0], [0, 50, 15, 89, 0]]


@pytest.mark.parametrize("width", [0, 1, 3, 16, 32])
def test_wide_values_are_copied_whole(width: int) -> None:
    run = np.random.default_rng(0).integers(0, 256, 400, dtype=np.uint8)
    starts, page, row = np.array([5, 200]), np.array([0, 1, 1], np.int32), np.array([2, 0, 3], np.int32)
    out = np.empty(3 * width, np.uint8)
    gather_wide(run, width, starts, page, row, out)
    assert out.tobytes() == b"".join(
        run[starts[p] + r * width : starts[p] + (r + 1) * width].tobytes() for p, r in zip(page, row, strict=True)
    )


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=4), st.data())
def test_bits_are_read_and_an_absent_bitmap_means_all_set(pages: list[list[bool]], data: st.DataObject) -> None:
    run, starts = b"\xaa", []
    for bits in pages:
        starts.append(-1 if all(bits) else len(run))
        run += np.packbits(bits, bitorder="little").tobytes()
    page, row = _chosen(data, [len(bits) for bits in pages])
    out = np.empty(page.size, np.bool_)
    unset = gather_bits(np.frombuffer(run, np.uint8), np.array(starts, np.int64), page, row, out)
    wanted = [pages[p][r] for p, r in zip(page, row, strict=True)]
    assert out.tolist() == wanted
    assert unset == wanted.count(False)
