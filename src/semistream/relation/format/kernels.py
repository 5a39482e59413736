"""Locate the buffers of Arrow IPC messages inside raw bytes, without building Arrow objects.

A page of R is one encapsulated IPC record-batch message. Parsing it through Arrow costs microseconds per page and
column; walking its flatbuffer here costs nanoseconds, which allows scans of small pages at disk speed. The kernels
check no bounds, so verify the checksum of the bytes first.
"""

import numpy as np

from semistream.kernels.array_types import Bools, Bytes, Int64s
from semistream.kernels.compiler import kernel, part

_PREFIX = 8  # continuation marker and metadata length, 4 bytes each
_HEADER_FIELD = 2  # Message.header
_BUFFERS_FIELD = 2  # RecordBatch.buffers
_RECORD_BATCHES_FIELD = 3  # Footer.recordBatches
_BLOCK_BYTES = 24  # struct Block { offset: long; metaDataLength: int; (padding); bodyLength: long }


@part
def _u16(data: Bytes, at: int) -> np.int64:
    return np.int64(data[at]) | (np.int64(data[at + 1]) << 8)


@part
def _i32(data: Bytes, at: int) -> np.int64:
    low = np.uint32(data[at]) | (np.uint32(data[at + 1]) << np.uint32(8))
    high = (np.uint32(data[at + 2]) << np.uint32(16)) | (np.uint32(data[at + 3]) << np.uint32(24))
    return np.int64(np.int32(low | high))


@part
def _i64(data: Bytes, at: int) -> np.int64:
    return (_i32(data, at) & np.int64(0xFFFFFFFF)) | (_i32(data, at + 4) << 32)


@part
def _field(data: Bytes, table: int, index: int) -> np.int64:
    """Return the position of field ``index`` of the flatbuffer ``table``, or -1 if it is absent."""
    vtable = table - _i32(data, table)
    slot = 4 + 2 * index
    if slot >= _u16(data, vtable):
        return np.int64(-1)
    at = _u16(data, vtable + slot)
    return table + at if at else np.int64(-1)


@part
def _target(data: Bytes, at: int) -> np.int64:
    return at + _i32(data, at)


@kernel
def locate_buffers(data: Bytes, page_starts: Int64s, first: int, count: int, positions: Int64s) -> None:
    """Fill ``positions[page, first + buffer]`` with the start in ``data`` of each of ``count`` buffers, or -1 if empty.

    In IPC, an empty validity bitmap means "no nulls" and an empty data buffer "no bytes". Flatbuffers align their
    8-byte fields and pages start at multiples of 8, so entries are read as whole words.
    """
    words = data.view(np.int64)
    for page in range(page_starts.size):
        start = page_starts[page]
        message = _target(data, start + _PREFIX)
        batch = _target(data, _field(data, message, _HEADER_FIELD))
        body = start + _PREFIX + _i32(data, start + 4)
        vector = _field(data, batch, _BUFFERS_FIELD)
        if vector < 0:
            positions[page, first : first + count] = -1
            continue
        vector = _target(data, vector)
        for buffer in range(count):
            entry = (vector + 4 >> 3) + 2 * buffer
            positions[page, first + buffer] = body + words[entry] if words[entry + 1] > 0 else -1


@kernel(allocates=True)
def filled_buffers(positions: Int64s) -> Bools:
    """Return a mask of the buffers that at least one page has."""
    filled = np.zeros(positions.shape[1], np.bool_)
    for page in range(positions.shape[0]):
        for buffer in range(filled.size):
            filled[buffer] |= positions[page, buffer] >= 0
    return filled


@kernel(allocates=True)
def locate_blocks(footer: Bytes) -> Int64s:
    """Return the (offset, bytes) of every record batch listed in the footer of an Arrow IPC file."""
    vector = _field(footer, _target(footer, 0), _RECORD_BATCHES_FIELD)
    if vector < 0:
        return np.empty((0, 2), np.int64)
    vector = _target(footer, vector)
    blocks = np.empty((_i32(footer, vector), 2), np.int64)
    for block in range(blocks.shape[0]):
        entry = vector + 4 + _BLOCK_BYTES * block
        blocks[block, 0] = _i64(footer, entry)
        blocks[block, 1] = _i32(footer, entry + 8) + _i64(footer, entry + 16)
    return blocks
