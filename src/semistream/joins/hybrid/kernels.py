"""Kernels of HYBRIDJOIN: chains of stream tuples by the pages they need, and the choice of pages to read.

There is one chain per bucket, and buckets form a binary heap. Bucket ``base + p`` is page ``p``, and bucket ``n`` is
the parent of buckets ``2 * n`` and ``2 * n + 1``, up to bucket 1. A tuple is in the lowest common ancestor of its
pages. A tuple that needs one page is therefore in that page's own bucket, and all tuples that may need a page are in
its bucket or in an ancestor. ``base`` is a power of two not less than the number of pages; if no tuple needs several
pages, it is 1 and pages have no ancestors. Bucket 0 holds the tuples that no page can serve.

``head[bucket]`` is the first tuple of a chain and ``following[tuple]`` the next one; -1 ends the chain. The newest
tuple comes first. A tuple asks for the codes from ``low`` to ``high`` and needs all pages that may hold one of them.
The tuples before position ``met[page]`` have met a page, as they were in the queue when it was last read.
``missing[tuple]`` is the number of pages that a tuple still has to meet. ``met`` and ``missing`` are empty if no tuple
needs several pages.
"""

import numpy as np

from semistream.kernels.array_types import Bytes, Int32s, Int64s
from semistream.kernels.compiler import kernel, part
from semistream.kernels.search import lower_bound, upper_bound

GONE = 1  # flags of a tuple: it has left
MATCHED = 2  # it has a match
HOPELESS = 4  # it cannot match, as its key is null

_SHORT = 64  # a tuple that needs up to this many pages is counted page by page


@part
def _pages_of(first_code: Int64s, last_code: Int64s, low: int, high: int) -> tuple[int, int]:
    """Return the first page that may hold a code from ``low`` to ``high``, and the page after the last."""
    pages = first_code.size
    first = end = lower_bound(last_code, 0, pages, low)
    if first < pages and first_code[first] <= high:
        end = first + 1
        if end < pages and first_code[end] <= high:
            end = upper_bound(first_code, end, pages, high)
    return first, end


@part
def _link(tuple_: int, first: int, end: int, base: int, head: Int32s, following: Int32s) -> None:
    bucket = 0
    if first < end:
        bucket, other = base + first, base + end - 1
        while bucket != other:
            bucket >>= 1
            other >>= 1
    following[tuple_] = head[bucket]
    head[bucket] = tuple_


@kernel
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
    """Put the tuples ``begin`` to ``end`` into their buckets; return the number of them that need a page.

    ``first_code`` and ``last_code`` are the pages'. ``waiting`` counts the tuples that still have to meet each page.
    ``rises`` is scratch: zeros, one more than there are pages.
    """
    needing = 0
    lowest, highest = waiting.size, 0  # the span of ``rises`` in use
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


@kernel
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
    """Put all tuples up to ``end`` into their buckets, which must be empty."""
    for tuple_ in range(end):
        first = stop = 0
        if not flags[tuple_] & HOPELESS:
            first, stop = _pages_of(first_code, last_code, low[tuple_], high[tuple_])
        _link(tuple_, first, stop, base, head, following)


@kernel
def unlink_hopeless(head: Int32s, following: Int32s, out: Int64s) -> int:
    """Remove the tuples that no page can serve, as many as ``out`` holds, from their bucket; return their number."""
    found = 0
    tuple_ = head[0]
    while tuple_ >= 0 and found < out.size:
        out[found] = tuple_
        found += 1
        tuple_ = following[tuple_]
    head[0] = tuple_
    return found


@kernel(allocates=True)
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
    """Write the stretches of the pages ``begin`` to ``end`` that tuples need and have not met; return their number.

    A tuple may have several stretches. With its last one it is removed from its bucket, if it then misses no page.
    ``cursor`` is (level, bucket, previous tuple, page), the point to resume at. It starts at
    (0, ``base + begin``, -1, 0); the search is complete when the level is -1. ``met`` must not change until then.
    """
    several = missing.size > 0
    earliest = np.int64(met[begin:end].min()) if several else np.int64(0)  # older tuples have met all these pages
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


@kernel
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
    """Return pages for the oldest tuple from ``oldest`` to ``end`` that needs more than the pages now being met.

    The pages being met are ``meeting_begin`` to ``meeting_end``. The result is the first page that the tuple still has
    to meet, and the end of up to ``most`` adjacent ones; (0, 0) if no tuple needs more.
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


@kernel
def first_live(flags: Bytes, begin: int, end: int) -> int:
    """Return the first tuple from ``begin`` to ``end`` that has not left, or ``end``."""
    for tuple_ in range(begin, end):
        if not flags[tuple_] & GONE:
            return tuple_
    return end


@kernel
def renumber_met(flags: Bytes, end: int, met: Int32s, places: Int32s) -> None:
    """Convert ``met`` to the positions after compaction, without the tuples that have left; ``places`` is scratch."""
    live = 0
    for tuple_ in range(end):
        places[tuple_] = live
        live += not flags[tuple_] & GONE
    for page in range(met.size):
        met[page] = places[met[page]] if met[page] < end else live


@kernel
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
    """Return begin and end of the pages around ``first`` to ``end`` whose reading serves the most tuples per time.

    The pages are contiguous in one file, with at most ``run_bytes`` and ``run_pages``; pages ``first`` to ``end`` must
    satisfy that themselves. ``waiting[p]`` tuples wait for page p, and at least one waits for a page from ``first`` to
    ``end``. The time is that of reading ``seek_bytes`` and the pages' bytes.

    This is Dinkelbach's iteration (1967): given the rate of some pages, the pages that serve the most tuples beyond
    that rate have a better rate, until no better one exists. Each round is one sweep over the possible begins, since
    the best end only moves forward.
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

        left_gain = 0.0  # of the pages from the candidate to first
        for page in range(low, first):
            left_gain += waiting[page] - rate * nbytes[page]
        used = left_bytes + must_bytes  # bytes from the candidate to reach
        reach = farthest = end
        gain = right_gain = 0.0  # of the pages from end to reach, and to farthest, where it peaks
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
