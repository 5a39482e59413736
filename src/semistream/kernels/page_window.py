"""Choose which pages of R to read around those that must be read."""

from numba import njit

from semistream.kernels.types import Int32s, Int64s


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
