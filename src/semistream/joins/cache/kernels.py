"""Kernels of the front stage: a hash index of cached rows by key code, and approximate counts of key codes.

The index uses open addressing over 32-bit entries, so that a row costs a few bytes. Rows are stored in the pages of a
run: ``words[code_starts[page] + row]`` is the code of a row, and ``frequency[first_rows[page] + row]`` its frequency,
negative if the row was dropped. Adjacent rows of a page with the same code form a stretch. The table has ``2**bits``
entries; 0 means empty. The lower ``place_bits`` of an entry hold one plus the place of the first row of a stretch,
``page << row_bits | row``. The next bit is set if the code has more stretches. The remaining bits are a tag from the
hash of the code. It differs for nearly all other codes, so pages are read almost only where the code is.
"""

import numpy as np

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s, UInt32s
from semistream.kernels.compiler import kernel, part

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@part
def _first_slot(hashed: np.uint64, bits: int) -> np.uint64:
    return hashed >> np.uint64(64 - bits)


@part
def _tag(hashed: np.uint64, bits: int, place_bits: int) -> np.uint64:
    """Return the hash bits not used for the slot, shifted to their position in an entry."""
    above = np.uint64(place_bits + 1)
    return (((hashed << np.uint64(bits)) >> np.uint64(32)) >> above) << above


@kernel
def index_rows(
    words: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    first_rows: Int64s,
    frequency: Int32s,
    table: UInt32s,
    bits: int,
    row_bits: int,
    place_bits: int,
) -> bool:
    """Fill an empty table with all rows not dropped; return True if some code has several stretches."""
    several = False
    last = np.uint64(table.size - 1)
    more, places = _ONE << np.uint64(place_bits), (_ONE << np.uint64(place_bits)) - _ONE
    for page in range(rows.size):
        start = code_starts[page]
        for row in range(rows[page]):
            code = words[start + row]
            if frequency[first_rows[page] + row] < 0 or (row > 0 and words[start + row - 1] == code):
                continue
            hashed = np.uint64(code) * _GOLDEN
            tag = _tag(hashed, bits, place_bits)
            slot = _first_slot(hashed, bits)
            while table[slot] != 0:
                entry = np.uint64(table[slot])
                place = np.int64((entry & places) - _ONE)
                if (entry & ~(more | places)) == tag:
                    other = place >> row_bits
                    if words[code_starts[other] + (place & ((1 << row_bits) - 1))] == code:
                        table[slot], several = np.uint32(entry | more), True
                slot = (slot + _ONE) & last
            table[slot] = np.uint32(tag | np.uint64(((page << row_bits) | row) + 1))
    return several


@kernel
def probe_rows(
    codes: Int64s,
    possible: Bools,
    words: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    first_rows: Int64s,
    frequency: Int32s,
    table: UInt32s,
    bits: int,
    row_bits: int,
    place_bits: int,
    begin: int,
    cursor: Int64s,
    out_position: Int32s,
    out_place: Int32s,
    out_missed: Int32s,
) -> int:
    """Find pairs of (position in ``codes``, place of a row) with equal codes, until done or the output is full.

    Returns the number of pairs. Each pair adds one to the frequency of its row. Positions without a pair go to
    ``out_missed`` with ``begin`` added, as do positions not flagged ``possible`` (an empty array allows all).
    ``cursor`` is (position, slot, row, misses so far): the place to resume, where slot and row are -1 at the start of a
    position. The search is done when ``cursor[0] == codes.size``.
    """
    last = np.uint64(table.size - 1)
    more, places = _ONE << np.uint64(place_bits), (_ONE << np.uint64(place_bits)) - _ONE
    row_mask = (1 << row_bits) - 1
    found, missed = 0, cursor[3]
    slot_before, row_before = cursor[1], cursor[2]
    for position in range(cursor[0], codes.size):
        if possible.size and not possible[position]:
            out_missed[missed] = begin + position
            missed += 1
            continue
        code = codes[position]
        hashed = np.uint64(code) * _GOLDEN
        tag = _tag(hashed, bits, place_bits)
        slot = _first_slot(hashed, bits)
        hit = slot_before >= 0
        if hit:
            slot, slot_before = np.uint64(slot_before), np.int64(-1)
        while table[slot] != 0:
            entry = np.uint64(table[slot])
            if (entry & ~(more | places)) == tag:
                place = np.int64((entry & places) - _ONE)
                page, row = place >> row_bits, place & row_mask
                start = code_starts[page]
                if words[start + row] == code:
                    hit = True
                    if row_before >= 0:
                        row, row_before = row_before, np.int64(-1)
                    while row < rows[page] and words[start + row] == code:
                        if found == out_place.size:
                            cursor[0], cursor[1], cursor[2], cursor[3] = position, np.int64(slot), row, missed
                            return found
                        out_position[found] = position
                        out_place[found] = (page << row_bits) | row
                        frequency[first_rows[page] + row] += 1
                        found += 1
                        row += 1
                    if not entry & more:
                        break
            slot = (slot + _ONE) & last
        if not hit:
            out_missed[missed] = begin + position
            missed += 1
    cursor[0], cursor[1], cursor[2], cursor[3] = codes.size, -1, -1, missed
    return found


@kernel
def find_codes(
    codes: Int64s,
    words: Int64s,
    code_starts: Int64s,
    table: UInt32s,
    bits: int,
    row_bits: int,
    place_bits: int,
    out: Bools,
) -> None:
    """Write a flag per code to ``out``: True if it has rows."""
    last = np.uint64(table.size - 1)
    more, places = _ONE << np.uint64(place_bits), (_ONE << np.uint64(place_bits)) - _ONE
    for i in range(codes.size):
        hashed = np.uint64(codes[i]) * _GOLDEN
        tag = _tag(hashed, bits, place_bits)
        slot = _first_slot(hashed, bits)
        out[i] = False
        while table[slot] != 0 and not out[i]:
            entry = np.uint64(table[slot])
            if (entry & ~(more | places)) == tag:
                place = np.int64((entry & places) - _ONE)
                out[i] = words[code_starts[place >> row_bits] + (place & ((1 << row_bits) - 1))] == codes[i]
            slot = (slot + _ONE) & last


@kernel
def order_by_page(
    position: Int32s,
    place: Int32s,
    row_bits: int,
    begin: int,
    counts: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> None:
    """Sort pairs by page, so that a page's columns are in the processor's cache while its rows are copied.

    ``begin`` is added to positions. ``counts`` is scratch space with one element more than there are pages.
    """
    counts[:] = 0
    for i in range(place.size):
        counts[(place[i] >> row_bits) + 1] += 1
    for page in range(1, counts.size):
        counts[page] += counts[page - 1]
    row_mask = (1 << row_bits) - 1
    for i in range(place.size):
        page = place[i] >> row_bits
        at = counts[page]
        counts[page] = at + 1
        out_position[at], out_page[at], out_row[at] = begin + position[i], page, place[i] & row_mask


_SPREAD, _OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_NOTED = 255  # counter value of a key already returned; it is not returned again before the counters are halved


@part
def _places(code: int, bits: int) -> tuple[np.int64, np.int64]:
    mixed = np.uint64(code) * _SPREAD
    again = (mixed ^ (mixed >> np.uint64(29))) * _OTHER
    return np.int64(mixed >> np.uint64(64 - bits)), np.int64(again >> np.uint64(64 - bits))


@kernel
def count_hot_rows(
    run: Int64s,
    code_starts: Int64s,
    page: Int32s,
    row: Int32s,
    counters: Bytes,
    bits: int,
    threshold: int,
    asked: Int32s,
    out_page: Int32s,
    out_row: Int32s,
    out_count: Int32s,
) -> int:
    """Add the pairs of a run to ``counters``, and find the keys whose count now exceeds ``threshold``.

    Pairs are given as (page, row), ordered by page. A hot key is written once, as its page and first row, with the
    estimate of its count: the lesser of two counters, never too low, and too high only if other keys share both.
    ``counters`` has ``2**bits`` bytes; if ``bits`` is 0, only the given pairs count. ``asked`` is scratch space for the
    rows of a page, all zero. Returns the number of hot keys.
    """
    found = 0
    begin = 0
    while begin < page.size:
        number = page[begin]
        end = begin
        while end < page.size and page[end] == number:
            asked[row[end]] += 1
            end += 1
        start = code_starts[number]
        for i in range(begin, end):
            at = row[i]
            count = asked[at]
            asked[at] = 0
            if count == 0 or (at > 0 and run[start + at - 1] == run[start + at]):
                continue  # seen already, or not the first row of its key
            if bits == 0:
                if count > threshold and found < out_row.size:
                    out_page[found], out_row[found], out_count[found] = number, at, count
                    found += 1
                continue
            one, other = _places(run[start + at], bits)
            before = np.int64(min(counters[one], counters[other]))
            if before == _NOTED:
                continue
            estimate = before + count
            counted = min(estimate, _NOTED - 1)
            if estimate > threshold and found < out_row.size:
                out_page[found], out_row[found], out_count[found] = number, at, estimate
                counted = _NOTED
                found += 1
            counters[one] = max(np.int64(counters[one]), counted)
            counters[other] = max(np.int64(counters[other]), counted)
        begin = end
    return found


@kernel
def rows_of_keys(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    numbers: Int64s,
    first_code: Int64s,
    last_code: Int64s,
    page: Int32s,
    row: Int32s,
    out_page: Int32s,
    out_row: Int32s,
    out_key: Int32s,
) -> tuple[int, bool]:
    """List all rows of the keys whose first rows are given, each with the index of its key.

    Returns the number of rows, and True if all fit; it stops before the first key whose rows do not all fit. Keys with
    rows in another page too are left out. To detect them, ``numbers`` maps the pages of the run to the page table,
    whose ``first_code`` and ``last_code`` cover every page.
    """
    found = 0
    for key in range(page.size):
        number, start = numbers[page[key]], code_starts[page[key]]
        code = run[start + row[key]]
        if (number > 0 and last_code[number - 1] == code) or (
            number + 1 < first_code.size and first_code[number + 1] == code
        ):
            continue
        end = row[key]
        while end < rows[page[key]] and run[start + end] == code:
            end += 1
        if found + end - row[key] > out_row.size:
            return found, False
        for at in range(row[key], end):
            out_page[found], out_row[found], out_key[found] = page[key], at, key
            found += 1
    return found, True
