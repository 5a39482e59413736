"""Cut wanted pages into sequences of one request each, and number the slots of pages on disk.

``pages`` are the wanted pages in disk order. A sequence goes from one wanted page to another of the same file and
covers everything in between. The cutting kernels fill ``cuts`` with the position of each sequence's first page,
followed by the end, and return the number of sequences.
"""

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Floats, Int32s, Int64s
from semistream.kernels.compiler import kernel, part

Pages = npt.NDArray[np.intp]


@part
def _fits(
    first: int, last: int, file: Int32s, offset: Int64s, nbytes: Int64s, slot: Int32s, most_bytes: int, most_pages: int
) -> bool:
    """True if one request may read from page ``first`` to page ``last``."""
    return first == last or (
        file[first] == file[last]
        and offset[last] + nbytes[last] - offset[first] <= most_bytes
        and slot[last] - slot[first] < most_pages
    )


@part
def _follows(after: int, before: int, file: Int32s, offset: Int64s, nbytes: Int64s) -> bool:
    """True if page ``after`` lies on disk directly after page ``before``."""
    return file[after] == file[before] and offset[after] == offset[before] + nbytes[before]


@kernel
def cut_optimally(
    pages: Pages,
    file: Int32s,
    offset: Int64s,
    nbytes: Int64s,
    slot: Int32s,
    seek_s: float,
    saved_s: float,
    byte_s: float,
    page_s: float,
    most_bytes: int,
    most_pages: int,
    through_s: Floats,
    ends: Int64s,
    queue: Int64s,
    cuts: Int64s,
) -> int:
    """Compute the cheapest cut: the dynamic program of SSIJ IV-D in O(pages), whatever the limits are.

    OPT[j] = min over e of (S + T * (end of e - begin of j) + OPT[e + 1]), where only ``through_s[e]`` = T * end of e +
    OPT[e + 1] depends on e. The farthest e that j may reach never moves back as j grows, so OPT[j] is the minimum of a
    sliding window. ``queue`` holds the ends that can still be the best one of some j, the farthest and cheapest first.
    Of plans with equal cost, the one with shorter sequences wins. A sequence that starts where the previous one ended
    saves ``saved_s`` of S. That too depends on e alone, namely on page e + 1 lying directly after page e.

    ``through_s``, ``ends`` (the last position of the best sequence from each page on) and ``queue`` are scratch.
    """
    opt_s = 0.0
    head, tail = 0, 0
    for j in range(pages.size - 1, -1, -1):
        page = pages[j]
        through_s[j] = byte_s * (offset[page] + nbytes[page]) + page_s * (slot[page] + 1) + opt_s
        if j + 1 < pages.size and _follows(pages[j + 1], page, file, offset, nbytes):
            through_s[j] -= saved_s
        while tail > head and through_s[queue[tail - 1]] >= through_s[j]:
            tail -= 1
        queue[tail] = j
        tail += 1
        while not _fits(page, pages[queue[head]], file, offset, nbytes, slot, most_bytes, most_pages):
            head += 1
        ends[j] = queue[head]
        opt_s = seek_s - byte_s * offset[page] - page_s * slot[page] + through_s[ends[j]]
    sequences, begin = 0, 0
    while begin < pages.size:
        cuts[sequences] = begin
        begin = ends[begin] + 1
        sequences += 1
    cuts[sequences] = pages.size
    return sequences


@kernel
def count_following(pages: Pages, cuts: Int64s, file: Int32s, offset: Int64s, nbytes: Int64s) -> int:
    """Count the sequences that start on disk where the previous one ended."""
    following = 0
    for cut in cuts[1:-1]:
        following += _follows(pages[cut], pages[cut - 1], file, offset, nbytes)
    return following


@kernel
def cut_greedily(
    pages: Pages,
    file: Int32s,
    offset: Int64s,
    nbytes: Int64s,
    slot: Int32s,
    most_unwanted: int,
    most_bytes: int,
    most_pages: int,
    cuts: Int64s,
) -> int:
    """Extend each sequence as far as the limits allow, with at most ``most_unwanted`` unwanted pages in a row."""
    sequences, begin = 0, 0
    for i in range(pages.size):
        page = pages[i]
        if i > 0 and (
            slot[page] - slot[pages[i - 1]] - 1 > most_unwanted
            or not _fits(pages[begin], page, file, offset, nbytes, slot, most_bytes, most_pages)
        ):
            sequences += 1
            begin = i
        cuts[sequences] = begin
    if pages.size:
        sequences += 1
    cuts[sequences] = pages.size
    return sequences


@kernel
def number_slots(
    order: npt.NDArray[np.intp],
    file: Int32s,
    offset: Int64s,
    nbytes: Int64s,
    mean_bytes: npt.NDArray[np.float64],
    slot: Int32s,
) -> None:
    """Fill ``slot`` with the slot numbers of pages; ``order`` is the disk order.

    A gap between two pages of a file counts as pages of the file's ``mean_bytes``, and as at least one.
    """
    number = 0
    for i in range(order.size):
        page = order[i]
        if i > 0:
            before = order[i - 1]
            number += 1
            if file[before] == file[page]:
                hole = offset[page] - offset[before] - nbytes[before]
                if hole > 0:
                    number += max(1, int(hole / mean_bytes[file[page]] + 0.5))
        slot[page] = number
