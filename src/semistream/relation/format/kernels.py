"""Locate the buffers of Arrow IPC messages inside raw bytes, without building Arrow objects.

A page of R is one encapsulated IPC record-batch message. Parsing it through Arrow costs microseconds per page and
column; walking its flatbuffer here costs nanoseconds, which allows scans of small pages at disk speed. Only
`first_unsound` checks bounds. It is called once for each page, after its checksum; the others trust its answer.
"""

import numpy as np

from semistream.kernels.array_types import Bools, Bytes, Int64s
from semistream.kernels.compiler import kernel, part

_PREFIX = 8  # continuation marker and metadata length, 4 bytes each
_HEADER_FIELD = 2  # Message.header
_BUFFERS_FIELD = 2  # RecordBatch.buffers
_RECORD_BATCHES_FIELD = 3  # Footer.recordBatches
_LENGTH_FIELD, _NODES_FIELD, _COMPRESSION_FIELD = 0, 1, 3  # of RecordBatch
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


# Kinds of buffers, by what their length must be for a page's rows.
UNCHECKED, BITMAP, BITS, FIXED, OFFSETS, BYTES = 0, 1, 2, 3, 4, 5


@part
def _i32_within(data: Bytes, at: int, begin: int, end: int) -> np.int64:
    """Return the number at a position, or a value below all positions if it does not lie from ``begin`` to ``end``."""
    return _i32(data, at) if begin <= at and at + 4 <= end else np.int64(-(1 << 40))


@part
def _table_within(data: Bytes, at: int, begin: int, end: int) -> np.int64:
    """Return ``at`` if a flatbuffer table lies there, with its list of fields, and -1 otherwise."""
    vtable = at - _i32_within(data, at, begin, end)
    if vtable < begin or vtable + 4 > end or at < begin:
        return np.int64(-1)
    return np.int64(at if vtable + _u16(data, vtable) <= end else -1)


@part
def _field_within(data: Bytes, table: int, index: int, nbytes: int, end: int) -> np.int64:
    """Return the position of a field of ``nbytes``, -1 if it is absent, -2 if it does not lie in the message."""
    vtable = table - _i32(data, table)
    slot = 4 + 2 * index
    if slot + 2 > _u16(data, vtable):
        return np.int64(-1)
    offset = _u16(data, vtable + slot)
    if offset == 0:
        return np.int64(-1)
    return table + offset if table + offset + nbytes <= end else np.int64(-2)


@part
def _vector_within(data: Bytes, field: int, items: int, begin: int, end: int) -> np.int64:
    """Return the first item of a vector of at least ``items`` pairs of 8-byte numbers, or -1."""
    if field < 0:
        return np.int64(0) if items == 0 and field == -1 else np.int64(-1)
    at = field + _i32_within(data, field, begin, end)
    count = _i32_within(data, at, begin, end)
    if at < begin or count < items or at + 4 + 16 * count > end:
        return np.int64(-1)
    return np.int64(at + 4)


@part
def _offsets_are_sound(data: Bytes, at: int, width: int, rows: int, nbytes: int) -> bool:
    """True if ``rows + 1`` offsets ascend from 0 or more to at most ``nbytes``."""
    before = np.int64(0)
    for row in range(rows + 1):
        offset = _i32(data, at + 4 * row) if width == 4 else _i64(data, at + 8 * row)
        if offset < before:
            return False
        before = offset
    return bool(before <= nbytes)


@part
def _buffers_are_sound(data: Bytes, vector: int, body: int, end: int, rows: int, kinds: Int64s, widths: Int64s) -> bool:
    """True if all buffers lie in the body and have room for the rows."""
    for buffer in range(kinds.size):
        offset, nbytes = _i64(data, vector + 16 * buffer), _i64(data, vector + 16 * buffer + 8)
        if offset < 0 or nbytes < 0 or offset % 8 or offset > end - body or nbytes > end - body - offset:
            return False
        kind, width = kinds[buffer], widths[buffer]
        if kind == BITMAP and nbytes and 8 * nbytes < rows:
            return False
        if (kind == BITS and 8 * nbytes < rows) or (kind == FIXED and nbytes // max(width, 1) < rows and width):
            return False
        if kind == OFFSETS and rows:
            room = _i64(data, vector + 16 * (buffer + 1) + 8)
            if nbytes // width <= rows or not _offsets_are_sound(data, body + offset, width, rows, room):
                return False
    return True


@part
def _codes_are_sound(codes: Int64s, first: int, last: int) -> bool:
    """True if a page's key codes ascend from ``first`` to ``last``."""
    if codes.size == 0 or codes[0] != first or codes[codes.size - 1] != last:
        return False
    descents = 0
    for row in range(1, codes.size):
        descents += codes[row] < codes[row - 1]
    return descents == 0


@kernel
def first_unsound(
    data: Bytes,
    starts: Int64s,
    lengths: Int64s,
    rows: Int64s,
    kinds: Int64s,
    widths: Int64s,
    flat: Int64s,
    codes: int,
    first_codes: Int64s,
    last_codes: Int64s,
) -> int:
    """Return the position of the first page that is not what its writer would have written, or -1.

    Pages lie at ``starts`` with ``lengths`` bytes, and must have ``rows`` rows. ``kinds`` and ``widths`` describe the
    buffers of a page. ``flat`` has a 1 for each column whose length is that of the page, and 0 for children. Buffer
    number ``codes`` has the key codes; -1 if they are not in this column group. After this check, no look-up in the
    page leads out of it, and its codes are in the order that operators rely on.
    """
    words = data.view(np.int64)
    for page in range(starts.size):
        start, end = starts[page], starts[page] + lengths[page]
        if lengths[page] < 16 or start % 8 or _i32(data, start) != -1 or rows[page] < 0:
            return page
        begin = start + _PREFIX
        body = begin + _i32(data, start + 4)
        if _i32(data, start + 4) <= 0 or body > end or body % 8:
            return page
        message = _table_within(data, begin + _i32_within(data, begin, begin, body), begin, body)
        if message < 0:
            return page
        header = _field_within(data, message, _HEADER_FIELD, 4, body)
        if header < 0:
            return page
        batch = _table_within(data, _target(data, header), begin, body)
        if batch < 0 or _field_within(data, batch, _COMPRESSION_FIELD, 4, body) != -1:
            return page
        length = _field_within(data, batch, _LENGTH_FIELD, 8, body)
        if length == -2 or (_i64(data, length) if length >= 0 else 0) != rows[page]:
            return page
        nodes = _vector_within(data, _field_within(data, batch, _NODES_FIELD, 4, body), flat.size, begin, body)
        vector = _vector_within(data, _field_within(data, batch, _BUFFERS_FIELD, 4, body), kinds.size, begin, body)
        if nodes < 0 or vector < 0 or vector % 8:
            return page
        for node in range(flat.size):
            count, nulls = _i64(data, nodes + 16 * node), _i64(data, nodes + 16 * node + 8)
            if count < 0 or nulls < 0 or nulls > count or (flat[node] and count != rows[page]):
                return page
        if not _buffers_are_sound(data, vector, body, end, rows[page], kinds, widths):
            return page
        if codes >= 0:
            at = (body + _i64(data, vector + 16 * codes)) // 8
            if not _codes_are_sound(words[at : at + rows[page]], first_codes[page], last_codes[page]):
                return page
    return -1


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
