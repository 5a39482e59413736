"""Match sorted codes or code ranges of the stream with sorted codes of the relation, and merge sorted codes."""

import numpy as np

from semistream.kernels.array_types import Int32s, Int64s
from semistream.kernels.compiler import kernel
from semistream.kernels.search import find, lower_bound


@kernel
def match_pages(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    codes: Int64s,
    cursor: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Find pairs of (position in ``codes``, row of a page) with equal codes, until done or the output is full.

    ``codes`` and the codes inside each page are ascending; pages come in any order. ``cursor`` is the (page, position,
    row) to resume at, with -1 for a position or row not yet determined. The match is complete when
    ``cursor[0] == rows.size``. Returns the number of pairs written.
    """
    found = 0
    position, resume = cursor[1], cursor[2]
    for page in range(cursor[0], rows.size):
        start, end = code_starts[page], code_starts[page] + rows[page]
        if position < 0:
            position = lower_bound(codes, 0, codes.size, run[start])
        first = start
        while position < codes.size and codes[position] <= run[end - 1]:
            code = codes[position]
            first = lower_bound(run, first, end, code)
            match = first
            if resume >= 0:
                match, resume = start + resume, -1
            while match < end and run[match] == code:
                if found == out_row.size:
                    cursor[0], cursor[1], cursor[2] = page, position, match - start
                    return found
                out_position[found] = position
                out_page[found] = page
                out_row[found] = match - start
                found += 1
                match += 1
            position += 1
        position = np.int64(-1)
    cursor[0], cursor[1], cursor[2] = rows.size, -1, -1
    return found


@kernel
def match_ranges(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    low: Int64s,
    high: Int64s,
    reach: Int64s,
    cursor: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Find pairs of (position in ``low``, row of a page) where the row's code is in the range ``low`` to ``high``.

    Works as `match_pages`, for ranges in ascending order of ``low``. ``reach[i]`` is the maximum of ``high[: i + 1]``;
    a binary search in it finds the first range that can touch a page.
    """
    found = 0
    position, resume = cursor[1], cursor[2]
    for page in range(cursor[0], rows.size):
        start, end = code_starts[page], code_starts[page] + rows[page]
        if position < 0:
            position = lower_bound(reach, 0, reach.size, run[start])
        first = start
        while position < low.size and low[position] <= run[end - 1]:
            if high[position] >= run[start]:
                first = lower_bound(run, first, end, low[position])
                match = first
                if resume >= 0:
                    match, resume = start + resume, -1
                while match < end and run[match] <= high[position]:
                    if found == out_row.size:
                        cursor[0], cursor[1], cursor[2] = page, position, match - start
                        return found
                    out_position[found] = position
                    out_page[found] = page
                    out_row[found] = match - start
                    found += 1
                    match += 1
            position += 1
        position = np.int64(-1)
    cursor[0], cursor[1], cursor[2] = rows.size, -1, -1
    return found


@kernel
def match_stretches(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    first_page: int,
    low: Int64s,
    high: Int64s,
    tuples: Int64s,
    first: Int32s,
    end: Int32s,
    cursor: Int64s,
    out_tuple: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Find pairs of (tuple, row of a page) where the row's code is in the tuple's range ``low`` to ``high``.

    Each of ``tuples`` is matched with the pages from ``first`` up to, but not including, ``end``. The run's first page
    has the number ``first_page``. ``low`` and ``high`` are indexed by tuple. ``cursor`` is the (position in ``tuples``,
    page, row) to resume at; the match is complete when ``cursor[0] == tuples.size``. Returns the number of pairs
    written.
    """
    found = 0
    page, resume = cursor[1], cursor[2]
    for position in range(cursor[0], tuples.size):
        tuple_ = tuples[position]
        if page < 0:
            page = np.int64(first[position] - first_page)
        while page < end[position] - first_page:
            start, stop = code_starts[page], code_starts[page] + rows[page]
            match = find(run, start, stop, low[tuple_]) if resume < 0 else start + resume
            resume = np.int64(-1)
            while match < stop and run[match] <= high[tuple_]:
                if found == out_row.size:
                    cursor[0], cursor[1], cursor[2] = position, page, match - start
                    return found
                out_tuple[found] = tuple_
                out_page[found] = page
                out_row[found] = match - start
                found += 1
                match += 1
            page += 1
        page = np.int64(-1)
    cursor[0], cursor[1], cursor[2] = tuples.size, -1, -1
    return found


@kernel(allocates=True)
def merge_sorted(
    left_codes: Int64s, left_values: Int64s, right_codes: Int64s, right_values: Int64s
) -> tuple[Int64s, Int64s]:
    """Merge two ascending arrays of codes, together with their values; of equal codes the left ones come first."""
    total = left_codes.size + right_codes.size
    codes, values = np.empty(total, np.int64), np.empty(total, np.int64)
    left = right = 0
    for i in range(total):
        if right == right_codes.size or (left < left_codes.size and left_codes[left] <= right_codes[right]):
            codes[i], values[i] = left_codes[left], left_values[left]
            left += 1
        else:
            codes[i], values[i] = right_codes[right], right_values[right]
            right += 1
    return codes, values


@kernel(allocates=True)
def merge_ranges(
    left_low: Int64s,
    left_high: Int64s,
    left_values: Int64s,
    right_low: Int64s,
    right_high: Int64s,
    right_values: Int64s,
) -> tuple[Int64s, Int64s, Int64s]:
    """Merge two arrays of ranges in ascending order of (low, high), together with their values; see `merge_sorted`."""
    total = left_low.size + right_low.size
    low, high, values = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    left = right = 0
    for i in range(total):
        from_left = right == right_low.size
        if not from_left and left < left_low.size:
            if left_low[left] == right_low[right]:
                from_left = left_high[left] <= right_high[right]
            else:
                from_left = left_low[left] < right_low[right]
        if from_left:
            low[i], high[i], values[i] = left_low[left], left_high[left], left_values[left]
            left += 1
        else:
            low[i], high[i], values[i] = right_low[right], right_high[right], right_values[right]
            right += 1
    return low, high, values
