"""Key partitions of a window join: the partition of each key, and the number that Spark groups it by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Int64s, UInt32s
from semistream.keys.values import Mask

_SPARK_SEED = np.uint32(42)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_CANDIDATES = 16  # numbers tried at once, per partition


def partition_of(codes: Int64s, possible: Mask | None, partitions: int) -> Int64s:
    """Return the partition of each key code, from 0, by the 64-bit finalizer of MurmurHash3: evenly for any codes.

    Rows that can match nothing go to the partitions in turn, so that many null keys do not overload one of them.

    >>> partition_of(np.array([7, 8, 7, 0]), np.array([True, True, True, False]), 4).tolist()
    [1, 3, 1, 3]
    """
    mixed = codes.view(np.uint64).copy()
    for factor in (_FIRST, _SECOND):
        mixed ^= mixed >> np.uint64(33)
        mixed *= factor
    mixed ^= mixed >> np.uint64(33)
    parts: Int64s = (mixed % np.uint64(partitions)).astype(np.int64)
    if possible is not None:
        hopeless = np.flatnonzero(~possible)
        parts[hopeless] = hopeless % partitions
    return parts


def group_numbers(partitions: int) -> tuple[int, ...]:
    """Return a number for each partition to group it by, such that Spark sends each to a task of its own.

    Spark sends a group to the task ``pmod(hash(number), tasks)``. With consecutive numbers from 0, several groups
    would share a task, and other tasks would have no work.

    >>> group_numbers(4)
    (12, 6, 2, 0)
    """
    found = np.full(partitions, -1, np.int64)
    first = 0
    while (found < 0).any():
        numbers = np.arange(first, first + _CANDIDATES * partitions, dtype=np.int64)
        tasks = spark_hash(numbers.astype(np.int32)).astype(np.int64) % partitions
        wanted, at = np.unique(tasks, return_index=True)
        new = found[wanted] < 0
        found[wanted[new]] = numbers[at[new]]
        first += numbers.size
    return tuple(found.tolist())


def spark_hash(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return Spark's ``hash`` of 32-bit integers: MurmurHash3 with the seed 42.

    >>> spark_hash(np.array([0, 1, -7], np.int32)).tolist()
    [933211791, -559580957, -1618159745]
    """
    mixed = numbers.view(np.uint32) * np.uint32(0xCC9E2D51)
    mixed = _rotated(mixed, 15) * np.uint32(0x1B873593)
    hashed = _rotated(_SPARK_SEED ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)  # bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed ^= hashed >> np.uint32(shift)
        hashed *= np.uint32(factor)
    hashed ^= hashed >> np.uint32(16)
    return hashed.view(np.int32)


def _rotated(words: UInt32s, bits: int) -> UInt32s:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
