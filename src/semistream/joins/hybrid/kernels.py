"""Chains of stream tuples, one for each bucket: those that wait for the same page of R, or for pages near each other.

Buckets are numbered like a heap. Bucket ``base + p`` is page ``p``, and above buckets ``2 * n`` and ``2 * n + 1`` is
bucket ``n``, up to bucket 1. A tuple is in the lowest bucket that has all of its pages below it. So a tuple of one page
is in that page's own bucket, and all that may need a page are in its bucket or in one above. ``base`` is a power of two
that is no less than the number of pages; if no tuple needs several pages, it is 1, and nothing is above. Tuples that no
page can serve are in bucket 0.

``head[bucket]`` is a tuple, ``following[tuple]`` the next one of its bucket, -1 the end. In a chain the tuple that came
last is the first. A tuple asks for the codes from ``low`` to ``high`` and needs all pages that may hold one of them. A
page that was met was met by all that were here then: those before position ``met[page]``. ``missing[tuple]`` are the
pages that it has yet to meet. ``met`` and ``missing`` are empty if no tuple needs several pages.

Choose which pages of R to read around those that must be read.
"""

import numpy as np
from numba import njit

from semistream.kernels.array_types import Bytes, Int32s, Int64s
from semistream.kernels.search import lower_bound, upper_bound

GONE = 1  # flags of a tuple: it has left,
MATCHED = 2  # it has met a partner,
HOPELESS = 4  # its key is null

_SHORT = 64  # pages that are counted one by one when a tuple that needs them comes


@njit(inline="always")
def _pages_of(first_code: Int64s, last_code: Int64s, low: int, high: int) -> tuple[int, int]:
    """The first page that may hold a code from ``low`` to ``high``, and the page behind the last one."""
    pages = first_code.size
    first = end = lower_bound(last_code, 0, pages, low)
    if first < pages and first_code[first] <= high:
        end = first + 1
        if end < pages and first_code[end] <= high:
            end = upper_bound(first_code, end, pages, high)
    return first, end


@njit(inline="always")
def _link(tuple_: int, first: int, end: int, base: int, head: Int32s, following: Int32s) -> None:
    bucket = 0
    if first < end:
        bucket, other = base + first, base + end - 1
        while bucket != other:
            bucket >>= 1
            other >>= 1
    following[tuple_] = head[bucket]
    head[bucket] = tuple_


@njit(cache=True, nogil=True)
def admit_tuples(
    first_code: Int64s,
    last_code: Int64s,
    low: Int64s,
    high: Int64s,
    flags: Bytes,
    begin: int,
    end: int,
    base: int,
    head: Int32s,
    following: Int32s,
    missing: Int32s,
    waiting: Int32s,
    rises: Int32s,
) -> int:
    """Put the tuples from ``begin`` to ``end`` into their buckets; gives how many of them need a page.

    ``first_code`` and ``last_code`` are those of the pages. ``waiting`` counts for each page the tuples that have yet
    to meet it. ``rises`` has one place more than there are pages, and zeros.
    """
    needing = 0
    lowest, highest = waiting.size, 0  # where there are rises
    for tuple_ in range(begin, end):
        first = stop = 0
        if not flags[tuple_] & HOPELESS:
            first, stop = _pages_of(first_code, last_code, low[tuple_], high[tuple_])
        _link(tuple_, first, stop, base, head, following)
        needing += first < stop
        if missing.size:
            missing[tuple_] = stop - first
        if stop - first <= _SHORT:
            for page in range(first, stop):
                waiting[page] += 1
        else:
            rises[first] += 1
            rises[stop] -= 1
            lowest, highest = min(lowest, first), max(highest, stop)
    more = 0
    for page in range(lowest, highest):
        more += rises[page]
        waiting[page] += more
    if lowest < highest:
        rises[lowest : highest + 1] = 0
    return needing


@njit(cache=True, nogil=True)
def link_tuples(
    first_code: Int64s,
    last_code: Int64s,
    low: Int64s,
    high: Int64s,
    flags: Bytes,
    end: int,
    base: int,
    head: Int32s,
    following: Int32s,
) -> None:
    """Put all tuples up to ``end`` into their buckets, which are empty."""
    for tuple_ in range(end):
        first = stop = 0
        if not flags[tuple_] & HOPELESS:
            first, stop = _pages_of(first_code, last_code, low[tuple_], high[tuple_])
        _link(tuple_, first, stop, base, head, following)


@njit(cache=True, nogil=True)
def unlink_hopeless(head: Int32s, following: Int32s, out: Int64s) -> int:
    """Take tuples that no page can serve out of their bucket, as many as ``out`` holds; gives how many these are."""
    found = 0
    tuple_ = head[0]
    while tuple_ >= 0 and found < out.size:
        out[found] = tuple_
        found += 1
        tuple_ = following[tuple_]
    head[0] = tuple_
    return found


@njit(cache=True, nogil=True)
def meet_pages(
    first_code: Int64s,
    last_code: Int64s,
    low: Int64s,
    high: Int64s,
    base: int,
    head: Int32s,
    following: Int32s,
    missing: Int32s,
    met: Int32s,
    begin: int,
    end: int,
    cursor: Int64s,
    out_tuple: Int64s,
    out_first: Int32s,
    out_end: Int32s,
) -> int:
    """Stretches of the pages from ``begin`` to ``end`` that a tuple needs and has not met; gives how many were found.

    A tuple may have several. It is taken out of its bucket with the last one if it misses no page then. ``cursor`` is
    (level, bucket, tuple before, page): where to go on. It starts at (0, ``base + begin``, -1, 0), and all is over when
    the level is -1. ``met`` must stay as it is until then.
    """
    several = missing.size > 0
    earliest = np.int64(met[begin:end].min()) if several else np.int64(0)  # those before it have met all these pages
    found = 0
    level, bucket, before, page = cursor[0], cursor[1], cursor[2], cursor[3]
    while level == 0 or (several and base >> level):
        while bucket <= (base + end - 1) >> level:
            from_, to = max(begin, (bucket << level) - base), min(end, ((bucket + 1) << level) - base)
            tuple_ = np.int64(head[bucket] if before < 0 else following[before])
            while tuple_ >= earliest:
                if level == 0:
                    page, stop = from_, to
                else:
                    page = max(page, lower_bound(last_code, from_, to, low[tuple_]))
                    stop = upper_bound(first_code, min(page, to), to, high[tuple_])
                while page < stop:
                    if several and met[page] > tuple_:
                        page += 1
                        continue
                    if found == out_tuple.size:
                        cursor[0], cursor[1], cursor[2], cursor[3] = level, bucket, before, page
                        return found
                    first = page
                    page += 1
                    while page < stop and met[page] <= tuple_:
                        page += 1
                    out_tuple[found], out_first[found], out_end[found] = tuple_, first, page
                    found += 1
                    if several:
                        missing[tuple_] -= page - first
                page = np.int64(0)
                after = np.int64(following[tuple_])
                if several and missing[tuple_]:
                    before = tuple_
                elif before < 0:
                    head[bucket] = after
                else:
                    following[before] = after
                tuple_ = after
            bucket += 1
            before = np.int64(-1)
        level += 1
        bucket = np.int64((base + begin) >> level)
    cursor[0] = -1
    return found


@njit(cache=True, nogil=True)
def next_pages(
    first_code: Int64s,
    last_code: Int64s,
    low: Int64s,
    high: Int64s,
    flags: Bytes,
    missing: Int32s,
    met: Int32s,
    oldest: int,
    end: int,
    meeting_begin: int,
    meeting_end: int,
    most: int,
) -> tuple[int, int]:
    """Pages that the first tuple from ``oldest`` to ``end`` has yet to meet that waits for more than those being met.

    These are ``meeting_begin`` to ``meeting_end``. Gives the first page, and the one behind the last of up to ``most``
    that follow one another; (0, 0) if no tuple waits for more.
    """
    several = missing.size > 0
    for tuple_ in range(oldest, end):
        if flags[tuple_] & (GONE | HOPELESS):
            continue
        first, stop = _pages_of(first_code, last_code, low[tuple_], high[tuple_])
        left = np.int64(missing[tuple_]) if several else stop - first
        for page in range(max(first, meeting_begin), min(stop, meeting_end)):
            left -= not several or met[page] <= tuple_
        if left > 0:
            while meeting_begin <= first < meeting_end or (several and met[first] > tuple_):
                first += 1
            until = first + 1
            while (
                until < min(stop, first + most)
                and not meeting_begin <= until < meeting_end
                and (not several or met[until] <= tuple_)
            ):
                until += 1
            return first, until
    return 0, 0


@njit(cache=True, nogil=True)
def first_live(flags: Bytes, begin: int, end: int) -> int:
    """The first tuple from ``begin`` to ``end`` that has not left; else ``end``."""
    for tuple_ in range(begin, end):
        if not flags[tuple_] & GONE:
            return tuple_
    return end


@njit(cache=True, nogil=True)
def renumber_met(flags: Bytes, end: int, met: Int32s, places: Int32s) -> None:
    """Say in ``met`` what positions will be when those of tuples that have left are given up; ``places`` is scratch."""
    live = 0
    for tuple_ in range(end):
        places[tuple_] = live
        live += not flags[tuple_] & GONE
    for page in range(met.size):
        met[page] = places[met[page]] if met[page] < end else live


@njit(cache=True, nogil=True)
def choose_pages(
    file: Int32s,
    offset: Int64s,
    nbytes: Int64s,
    waiting: Int32s,
    first: int,
    end: int,
    run_bytes: int,
    run_pages: int,
    seek_bytes: int,
) -> tuple[int, int]:
    """The pages around those from ``first`` to ``end`` whose reading serves the most tuples for its time.

    Gives their begin and end. They lie one behind the other in one file and have at most ``run_bytes`` and
    ``run_pages``; those from ``first`` to ``end`` must do so themselves. ``waiting[p]`` tuples wait for page p,
    some for a page from ``first`` on. The time is that of ``seek_bytes`` and of the pages'.

    It is Dinkelbach's iteration (1967): given the rate of some pages, those that serve most tuples beyond that rate
    have a better one, until there is no better. Each round is one sweep over the begins, as their ends only move on.
    """
    low, high = first, end
    must_bytes = left_bytes = right_bytes = 0
    for page in range(first, end):
        must_bytes += nbytes[page]
    while (
        low > 0
        and file[low - 1] == file[low]
        and offset[low - 1] + nbytes[low - 1] == offset[low]
        and left_bytes + must_bytes + nbytes[low - 1] <= run_bytes
        and end - (low - 1) <= run_pages
    ):
        low -= 1
        left_bytes += nbytes[low]
    while (
        high < file.size
        and file[high] == file[high - 1]
        and offset[high - 1] + nbytes[high - 1] == offset[high]
        and right_bytes + must_bytes + nbytes[high] <= run_bytes
        and high + 1 - first <= run_pages
    ):
        right_bytes += nbytes[high]
        high += 1

    best_begin, best_end, best_rate = first, end, 0.0
    begin, stop = first, end
    while True:
        served, spent = 0, seek_bytes
        for page in range(begin, stop):
            served += waiting[page]
            spent += nbytes[page]
        rate = served / spent
        if rate <= best_rate:
            return best_begin, best_end
        best_begin, best_end, best_rate = begin, stop, rate

        left_gain = 0.0  # of the pages from a begin to first
        for page in range(low, first):
            left_gain += waiting[page] - rate * nbytes[page]
        used = left_bytes + must_bytes  # by the pages from a begin to reach
        reach = farthest = end
        gain = right_gain = 0.0  # of the pages from end to reach, and to farthest, where it is greatest
        most = -1e300
        for candidate in range(low, first + 1):
            while reach < high and used + nbytes[reach] <= run_bytes and reach + 1 - candidate <= run_pages:
                used += nbytes[reach]
                gain += waiting[reach] - rate * nbytes[reach]
                reach += 1
                if gain > right_gain:
                    right_gain, farthest = gain, reach
            if left_gain + right_gain > most:
                most = left_gain + right_gain
                begin, stop = candidate, farthest
            if candidate < first:
                left_gain -= waiting[candidate] - rate * nbytes[candidate]
                used -= nbytes[candidate]
