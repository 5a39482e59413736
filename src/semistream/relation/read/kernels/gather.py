"""Copy chosen rows from the pages of a run, column by column, into fresh buffers in Arrow's layout.

``page`` and ``row`` identify the chosen rows: the page's position in the run, and the row's position in the page.
``starts[page]`` is the start of the column's buffer in the run; -1 marks an absent validity bitmap, which means that
every row is valid.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.byte_strings import address_of, copy_bytes
from semistream.kernels.compiler import kernel

_LINE = 64  # bytes of a cache line
_DENSE = 16  # fetch all cache lines of a column if at least one row in 16 is wanted


@kernel
def gather_columns(
    values: npt.NDArray[Any], positions: Int64s, buffers: Int64s, page: Int32s, row: Int32s, out: npt.NDArray[Any]
) -> Any:
    """Gather columns of one fixed width; ``values`` is the run viewed as the width's type.

    ``positions[page, buffer]`` is the start of a buffer in the run, ``buffers`` are the buffers of the columns, and
    ``out[column]`` takes the column's values. The result is meaningless; it keeps the prefetch from being optimised
    away.
    """
    shift = 0
    while 1 << shift < values.itemsize:
        shift += 1
    touched = values[0]
    begin = 0
    while begin < page.size:  # page by page, so that its columns stay in the processor's cache
        first = last = row[begin]
        end = begin + 1
        while end < page.size and page[end] == page[begin]:
            first, last = min(first, row[end]), max(last, row[end])
            end += 1
        dense = (end - begin) * _DENSE > last - first
        for column in range(buffers.size):
            start = positions[page[begin], buffers[column]] >> shift
            if dense:  # touch every cache line once, so that the processor prefetches the values
                for i in range(start + first, start + last, _LINE // values.itemsize):
                    touched |= values[i]
            target = out[column]
            for i in range(begin, end):
                target[np.uint64(i)] = values[np.uint64(start + row[np.uint64(i)])]
        begin = end
    return touched


@kernel
def gather_wide(run: Bytes, width: int, starts: Int64s, page: Int32s, row: Int32s, out: Bytes) -> None:
    """Gather fixed-width values of any number of bytes."""
    for i in range(page.size):
        source = starts[page[i]] + np.int64(row[i]) * width
        for byte in range(width):
            out[i * width + byte] = run[source + byte]


@kernel
def gather_bits(run: Bytes, starts: Int64s, page: Int32s, row: Int32s, out: Bools) -> int:
    """Gather bits of a bitmap (booleans, validity) as one byte each; return the number of unset bits."""
    unset = 0
    for i in range(page.size):
        start = starts[page[i]]
        bit = True
        if start >= 0:
            bit = (run[start + (row[i] >> 3)] >> (row[i] & 7)) & 1 != 0
        out[i] = bit
        unset += not bit
    return unset


@kernel
def gather_lengths(
    offsets: npt.NDArray[Any], starts: Int64s, page: Int32s, row: Int32s, out: npt.NDArray[Any]
) -> np.int64:
    """Fill ``out`` with the offsets of the gathered strings, where ``out[0] == 0``; return their total bytes."""
    total = np.int64(0)
    out[0] = 0
    for i in range(page.size):
        at = starts[page[i]] + row[i]
        total += offsets[at + 1] - offsets[at]
        out[i + 1] = total
    return total


@kernel
def gather_bytes(
    run: Bytes,
    offsets: npt.NDArray[Any],
    starts: Int64s,
    data_starts: Int64s,
    page: Int32s,
    row: Int32s,
    out_offsets: npt.NDArray[Any],
    out: Bytes,
) -> None:
    """Gather the bytes of the strings measured by `gather_lengths`."""
    source, target = address_of(run), address_of(out)
    for i in range(page.size):
        at = starts[page[i]] + row[i]
        begin, size = np.int64(offsets[at]), np.int64(offsets[at + 1]) - np.int64(offsets[at])
        copy_bytes(target + np.int64(out_offsets[i]), source + data_starts[page[i]] + begin, size)
