"""Match the pages of a run with stream tuples stored in several sorted levels of one block."""

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.compiler import kernel, part, subroutine
from semistream.kernels.search import find, find_from

_GREATEST = np.iinfo(np.int64).max
_NEAR = 8  # codes checked one by one before the search jumps
_CONSECUTIVE = -1  # in place of a bucket shift: the page's codes are consecutive, so no table is needed


@part
def _first_at_least(codes: npt.NDArray[Any], base: int, low: int, high: int, code: int) -> int:
    """Return the first position in ``codes[low:high]``, stored as distances from ``base``, not less than ``code``."""
    if base == 0:
        return find(codes, low, high, code)
    if code <= base:
        return low
    distance = np.uint64(code) - np.uint64(base)
    return find(codes, low, high, np.int64(min(distance, np.uint64(_GREATEST))))


@part
def _first_from(codes: npt.NDArray[Any], base: int, low: int, code: int) -> int:
    """Search like `_first_at_least` in ``codes[low:]``, fast if the position is near ``low``."""
    near = min(low + _NEAR, codes.size)
    while low < near and np.int64(codes[np.uint64(low)]) + base < code:
        low += 1
    return _first_at_least(codes, base, low, codes.size, code) if low == near else low


@part
def _is_consecutive(run: Int64s, start: int, end: int) -> bool:
    """Return True if the codes of a page are consecutive, without gaps or duplicates."""
    least = run[start]
    if np.uint64(run[end - 1]) - np.uint64(least) != np.uint64(end - 1 - start):
        return False
    difference = np.int64(0)
    for i in range(end - start):
        difference |= run[start + i] ^ (least + i)
    return difference == 0


@part
def _bucket(code: int, least: int, bucket_shift: int) -> np.uint64:
    return (np.uint64(code) - np.uint64(least)) >> np.uint64(bucket_shift)


@part
def _fill_table(run: Int64s, start: int, end: int, table: Int32s) -> int:
    """Cut a page's code range into equal buckets, note the first row in or after each; return their size in bits.

    There are up to two buckets per row, so few rows share one if codes are evenly spread, as dense keys and hashes are.
    """
    least, most = run[start], run[end - 1]
    bucket_shift = 0
    while _bucket(most, least, bucket_shift) >= np.uint64(min(table.size, 2 * (end - start))):
        bucket_shift += 1
    filled = np.uint64(0)
    for row in range(start, end):
        bucket = _bucket(run[np.uint64(row)], least, bucket_shift)
        while filled <= bucket:
            table[filled] = row - start
            filled += np.uint64(1)
    return bucket_shift


@subroutine
def _match_level(
    run: Int64s,
    start: int,
    end: int,
    codes: npt.NDArray[Any],
    base: int,
    shift: int,
    position: int,
    cursor: int,
    resume: int,
    table: Int32s,
    bucket_shift: int,
    page: int,
    number: int,
    found: int,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> tuple[int, int, int]:
    """Append the pairs of a level and a page; return the number of pairs, the position in the level, and a row.

    The row is the one to resume with if the output is full, and -1 if the page is done.
    """
    first = run[start]
    least, most = first >> shift, run[end - 1] >> shift
    if position < 0:
        position = cursor
        if position > 0 and np.int64(codes[position - 1]) + base >= least:
            position = _first_at_least(codes, base, 0, position, least)
        else:
            position = _first_from(codes, base, position, least)
    if bucket_shift == _CONSECUTIVE:
        while position < codes.size:
            code = np.int64(codes[np.uint64(position)]) + base
            if code > most:
                break
            if found == out_row.size:
                return found, position, code - least
            at = np.uint64(found)
            out_position[at] = number + position
            out_page[at] = page
            out_row[at] = code - least
            found += 1
            position += 1
    while bucket_shift != _CONSECUTIVE and position < codes.size:
        code = np.int64(codes[np.uint64(position)]) + base
        if code > most:
            break
        begin = max(code << shift, first)  # the least code that equals it above the lowest ``shift`` bits
        match = find_from(run, start + table[_bucket(begin, first, bucket_shift)], end, begin)
        if resume >= 0:
            match, resume = start + resume, -1
        while match < end and run[np.uint64(match)] >> shift == code:
            if found == out_row.size:
                return found, position, match - start
            at = np.uint64(found)
            out_position[at] = number + position
            out_page[at] = page
            out_row[at] = match - start
            found += 1
            match += 1
        position += 1
    # The next page may hold more rows with this page's last code, so step back to the first tuple that asks for it.
    while position > 0 and np.int64(codes[position - 1]) + base >= most:
        position -= 1
    return found, position, -1


@kernel
def match_levels(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    pages_met: Int64s,
    block: Bytes,
    at: Int64s,
    narrow: Bools,
    bases: Int64s,
    shift: int,
    sizes: Int64s,
    numbers: Int64s,
    flags_at: Int64s,
    level_cursors: Int64s,
    table: Int32s,
    cursor: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Write pairs (tuple number, page, row) with equal codes until done or the output is full; return their number.

    Level l has ``sizes[l]`` ascending codes at byte ``at[l]`` of ``block``: words of 32 bits if it is ``narrow``, else
    of 64, plus ``bases[l]``. They lack the lowest ``shift`` bits, which are not compared. Tuples are numbered from
    ``numbers[l]``. A level meets the first ``pages_met[l]`` pages of the run. If ``flags_at`` is not empty, each
    matched tuple's byte from ``flags_at[l]`` is set to 1.

    ``level_cursors`` keeps the position in each level after the last page, also from the previous run. Pages mostly
    come in code order, so their tuples are found at once. In a page of consecutive codes the row follows from the
    code; elsewhere ``table`` narrows the search. ``cursor`` is (page, level, position, row), the point to resume at;
    the match is complete when ``cursor[0] == rows.size``.
    """
    words, longs = block.view(np.uint32), block.view(np.int64)
    found = 0
    first_level, position, resume = cursor[1], cursor[2], cursor[3]
    for page in range(cursor[0], rows.size):
        start, end = code_starts[page], code_starts[page] + rows[page]
        if shift == 0 and _is_consecutive(run, start, end):
            bucket_shift = _CONSECUTIVE
        else:
            bucket_shift = _fill_table(run, start, end, table)
        for level in range(first_level, at.size):
            if page >= pages_met[level]:
                continue
            before = found
            if narrow[level]:
                begin = at[level] >> 2
                found, position, resume = _match_level(
                    run, start, end, words[begin : begin + sizes[level]], bases[level], shift, position,
                    level_cursors[level], resume, table, bucket_shift, page, numbers[level], found,
                    out_position, out_page, out_row,
                )  # fmt: skip
            else:
                begin = at[level] >> 3
                found, position, resume = _match_level(
                    run, start, end, longs[begin : begin + sizes[level]], bases[level], shift, position,
                    level_cursors[level], resume, table, bucket_shift, page, numbers[level], found,
                    out_position, out_page, out_row,
                )  # fmt: skip
            if flags_at.size:
                flags = flags_at[level] - numbers[level]
                for i in range(before, found):
                    block[np.uint64(flags + out_position[np.uint64(i)])] = 1
            if resume >= 0:
                cursor[0], cursor[1], cursor[2], cursor[3] = page, level, position, resume
                return found
            level_cursors[level] = position
            position = np.int64(-1)
        first_level = 0
    cursor[0], cursor[1], cursor[2], cursor[3] = rows.size, 0, -1, -1
    return found


@kernel
def flag_pages(
    codes: npt.NDArray[Any],
    base: int,
    shift: int,
    first_codes: Int64s,
    last_codes: Int64s,
    places: Int32s,
    flags: Bools,
) -> None:
    """Set ``flags`` at the places of the pages that may hold any of the codes; codes and pages are ascending.

    Codes are distances from ``base``, without their lowest ``shift`` bits. The kernel walks codes and pages together
    and jumps over pages where codes are sparse.
    """
    page, pages = 0, first_codes.size
    flagged = -np.int64(_GREATEST) - 1  # pages of all codes below are flagged
    for distance in codes:
        code = np.int64(distance) + base
        if code < flagged:
            continue
        page = find_from(last_codes, page, pages, code << shift)
        holding = page
        while holding < pages and first_codes[holding] >> shift <= code:
            flags[places[holding]] = True
            if code < last_codes[holding] >> shift:
                flagged = last_codes[holding] >> shift  # smaller codes are in no later page
                break
            holding += 1
