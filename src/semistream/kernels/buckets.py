"""Chains of stream tuples, one for each bucket: those that wait for the same pages of R.

The codes of page ``p`` that no other page holds are bucket ``2 * p``; the code that begins in ``p`` and goes on in the
next page is bucket ``2 * p + 1``. So buckets ascend with codes, and all tuples of a bucket need the same pages. What no
page can hold is in the last bucket, ``2 * pages``. ``head[bucket]`` is a tuple, ``following[tuple]`` the next one of
its bucket, -1 the end.
"""

import numpy as np
from numba import njit

from semistream.kernels.types import Bytes, Int32s, Int64s

GONE = 1  # flags of a tuple: it has left,
MATCHED = 2  # it has met a partner,
HOPELESS = 4  # its key is null


@njit(cache=True, nogil=True)
def link_tuples(
    first_code: Int64s,
    last_code: Int64s,
    codes: Int64s,
    flags: Bytes,
    begin: int,
    end: int,
    head: Int32s,
    following: Int32s,
    waiting: Int32s,
) -> int:
    """Put the tuples from ``begin`` to ``end`` into their buckets, and count them there; gives how many have a page.

    ``first_code`` and ``last_code`` are those of the pages.
    """
    pages = first_code.size
    linked = 0
    for tuple_ in range(begin, end):
        bucket = 2 * pages
        if not flags[tuple_] & HOPELESS:
            code = codes[tuple_]
            page = np.searchsorted(last_code, code)
            if page < pages and first_code[page] <= code:
                bucket = 2 * page
                if page + 1 < pages and first_code[page + 1] == code:
                    bucket += 1
                linked += 1
        following[tuple_] = head[bucket]
        head[bucket] = tuple_
        waiting[bucket] += 1
    return linked


@njit(cache=True, nogil=True)
def unlink_tuples(head: Int32s, following: Int32s, begin: int, end: int, out: Int64s) -> int:
    """Take tuples out of the buckets from ``begin`` to ``end``, as many as ``out`` holds; gives how many these are."""
    found = 0
    for bucket in range(begin, end):
        tuple_ = head[bucket]
        while tuple_ >= 0 and found < out.size:
            out[found] = tuple_
            found += 1
            tuple_ = following[tuple_]
        head[bucket] = tuple_
    return found


@njit(cache=True, nogil=True)
def list_tuples(following: Int32s, start: int, out: Int64s) -> tuple[int, np.int64]:
    """The tuples of a chain from ``start`` on, as many as ``out`` holds: how many these are, and where to go on."""
    found = 0
    tuple_ = np.int64(start)
    while tuple_ >= 0 and found < out.size:
        out[found] = tuple_
        found += 1
        tuple_ = np.int64(following[tuple_])
    return found, tuple_


@njit(cache=True, nogil=True)
def first_outside(codes: Int64s, flags: Bytes, begin: int, end: int, low: int, high: int) -> int:
    """The first tuple from ``begin`` to ``end`` that has not left and has no code in [low, high]; else ``end``."""
    for tuple_ in range(begin, end):
        if not flags[tuple_] & GONE and not low <= codes[tuple_] <= high:
            return tuple_
    return end
