"""The hash table H of MESHJOIN over a ring of stream tuples, with first-in first-out expiry.

A slot of the ring holds one stream tuple. Each bucket is a chain of slots in arrival order; since tuples expire in
arrival order too, the one that expires is always the head of its chain: adding and removing take constant time
however many tuples share a key. Links are slot + 1, so that zeroed memory is an empty table.

``bits`` is a filter in front of the table, one bit per hash value at ``filter_shift``. It can only err by letting a
probe through (bits of expired tuples stay until the filter is rebuilt), never by holding one back.
"""

import numpy as np
from numba import njit

from semistream.kernels.types import Bools, Bytes, Int32s, Int64s, UInt64s

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SIX = np.uint64(6)
_LOW6 = np.uint64(63)
_ONE = np.uint64(1)


@njit(inline="always")
def _hash(code: int) -> np.uint64:
    mixed = np.uint64(code) * _GOLDEN
    # Fold the high half in and multiply again: consecutive integer keys must not fill one filter word each.
    return (mixed ^ (mixed >> np.uint64(32))) * _GOLDEN


@njit(cache=True, nogil=True)
def insert_tuples(
    codes: Int64s,
    can_match: Bools,
    first_slot: int,
    window_codes: Int64s,
    heads: Int32s,
    tails: Int32s,
    links: Int32s,
    bucket_shift: int,
    bits: UInt64s,
    filter_shift: int,
) -> int:
    """Add tuples to consecutive slots from ``first_slot`` on, round the ring; gives how many entered the table."""
    shift, bit_shift = np.uint64(bucket_shift), np.uint64(filter_shift)
    capacity = window_codes.size
    slot = first_slot
    added = 0
    for i in range(codes.size):
        code = codes[i]
        window_codes[slot] = code
        links[slot] = -1
        if can_match.size == 0 or can_match[i]:
            hashed = _hash(code)
            bucket = hashed >> shift
            links[slot] = 0
            if heads[bucket] == 0:
                heads[bucket] = slot + 1
            else:
                links[tails[bucket] - 1] = slot + 1
            tails[bucket] = slot + 1
            bit = hashed >> bit_shift
            bits[bit >> _SIX] |= _ONE << (bit & _LOW6)
            added += 1
        slot = slot + 1 if slot + 1 < capacity else 0
    return added


@njit(cache=True, nogil=True)
def expire_tuples(
    first_slot: int, count: int, window_codes: Int64s, heads: Int32s, links: Int32s, bucket_shift: int
) -> int:
    """Remove the ``count`` oldest tuples, which start at ``first_slot``; gives how many were in the table."""
    shift = np.uint64(bucket_shift)
    capacity = window_codes.size
    slot = first_slot
    removed = 0
    for _ in range(count):
        if links[slot] >= 0:
            heads[_hash(window_codes[slot]) >> shift] = links[slot]
            removed += 1
        slot = slot + 1 if slot + 1 < capacity else 0
    return removed


@njit(cache=True, nogil=True)
def rebuild_filter(
    first_slot: int, count: int, window_codes: Int64s, links: Int32s, bits: UInt64s, filter_shift: int
) -> None:
    """Set the filter to exactly the tuples in the window."""
    bit_shift = np.uint64(filter_shift)
    capacity = window_codes.size
    bits[:] = 0
    slot = first_slot
    for _ in range(count):
        if links[slot] >= 0:
            bit = _hash(window_codes[slot]) >> bit_shift
            bits[bit >> _SIX] |= _ONE << (bit & _LOW6)
        slot = slot + 1 if slot + 1 < capacity else 0


@njit(cache=True, nogil=True)
def probe_pages(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    window_codes: Int64s,
    heads: Int32s,
    links: Int32s,
    bucket_shift: int,
    bits: UInt64s,
    filter_shift: int,
    cursor: Int64s,
    out_slot: Int32s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Probe the table with every R-tuple of a run (MESH Fig. 4, lines 9-10) until done or the output is full.

    ``cursor`` is (page, row, link): where to go on; the probe is over when ``cursor[0] == rows.size``. The link is 0
    between two R-tuples, else the next slot + 1 of the chain that the last call stopped in.
    """
    shift, bit_shift = np.uint64(bucket_shift), np.uint64(filter_shift)
    most = np.int64(0)
    for page in range(rows.size):
        most = max(most, np.int64(rows[page]))
    passed = np.empty(most, np.int32)
    chains = np.empty(most, np.int32)
    found = 0
    first_row, resumed = cursor[1], cursor[2]
    for page in range(cursor[0], rows.size):
        start = code_starts[page]
        # Three passes instead of one: none of the loads of a pass waits for another, so that cache misses overlap.
        count = 0
        for row in range(first_row, rows[page]):
            bit = _hash(run[start + row]) >> bit_shift
            passed[count] = row
            count += (bits[bit >> _SIX] >> (bit & _LOW6)) & _ONE
        for i in range(count):
            chains[i] = heads[_hash(run[start + passed[i]]) >> shift]
        if resumed != 0:  # the row that the last call stopped in passed the filter then, and so is the first
            chains[0] = resumed
        for i in range(count):
            row = passed[i]
            code = run[start + row]
            link = chains[i]
            while link != 0:
                slot = link - 1
                if window_codes[slot] == code:
                    if found == out_slot.size:
                        cursor[0], cursor[1], cursor[2] = page, row, link
                        return found
                    out_slot[found] = slot
                    out_page[found] = page
                    out_row[found] = row
                    found += 1
                link = links[slot]
        first_row, resumed = np.int64(0), np.int64(0)
    cursor[0], cursor[1], cursor[2] = rows.size, 0, 0
    return found


@njit(cache=True, nogil=True)
def mark_slots(slots: Int32s, flags: Bytes) -> None:
    """Set the flag of every slot named."""
    for i in range(slots.size):
        flags[slots[i]] = 1
