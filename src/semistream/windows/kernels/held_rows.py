"""The memory of a window join: tuples of two streams in slots, found by key, by age and by priority.

A slot is one row of ``records``, 64 bytes, so that a tuple is one line of the processor's cache; ``links`` is the same
memory in words of 32 bits. ``ARRIVAL`` is -1 in a slot that is free. Three structures lie over the slots, each for
either side:

- buckets of a hash table: ``heads[side, bucket]`` is the youngest tuple, ``AFTER`` the next older one. ``BEFORE`` is
  the next younger one, or ``~bucket`` of the youngest.
- a ring of tuples in the order of arrival, from which the expired ones are taken. A tuple that left before stays in the
  ring until its turn comes: its arrival is not that of the slot any more.
- a chain for each class of priority, oldest first (`semistream.kernels.window_classes`), or a pool to draw from.

Tuples of two streams as the kernels of a window join take them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s, UInt64s

Floats = npt.NDArray[np.float64]
Counters = npt.NDArray[np.float32]

WORDS = 8  # 64-bit words of a slot
CODE, TIME, POSITION, ARRIVAL, ORIGIN = range(5)  # words of 64 bits
BEFORE, AFTER, OLDER, YOUNGER, CLASS, COST = range(10, 16)  # words of 32 bits; CLASS is class << 1 | side

# What `state` holds; of names with a side's place behind them, that of the left is given.
LIVE, USED, SEEN, COUNT, RING_START, RING_COUNT, EXPIRED, EVICTED, HOPELESS = range(0, 18, 2)
FREE, ARRIVALS, NOW, RANDOM, REFRESH_AT, DECAY_AT, DEPARTED = range(18, 25)
POLICY, VARIABLE, LEARNT, HALF_LIFE, REFRESH, KEEP_DEPARTED = range(25, 31)
CAPACITY, WINDOW, BY_TUPLES = range(31, 37, 2)
DROPPED = 37
QUEUE_MODEL, QUEUE_LIMIT, QUEUED, SERVICE, SERVICE_PER, CREDIT, CLOCK, DROP_DUE = range(39, 47)
STATE_WORDS = 47
UNBOUNDED = -1  # as a window
# What `sums` holds of each side: tuples that the sketch counts, results that evicted tuples may have cost, and what the
# least worthy tuple that is kept is worth, in the mean.
TOTAL, LOST, PRICE = range(0, 6, 2)
SUMS = 6

# Kernels that are given these arrays do not count references to them: numba would do so whenever one is named, by
# instructions that lock memory, and a tuple would take four times as long. They allocate nothing, so nothing is lost.
kernel = njit(cache=True, nogil=True, _nrt=False)
part = njit(inline="always", _nrt=False)
rare_part = njit(_nrt=False)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class WindowMemory(NamedTuple):
    """The arrays; first dimensions of two are the sides. ``sums`` and ``state`` are indexed by the names above."""

    records: Int64s
    links: Int32s
    heads: Int32s
    ring: Int32s
    ring_arrivals: Int64s
    first: Int32s  # of each class, the oldest tuple
    last: Int32s
    head_age: Int64s  # of each class, the time (or position) of the oldest tuple
    marks: UInt64s  # which classes have tuples, a bit each, and which words of these have bits, and so on
    values: Floats  # of each class
    pool: Int32s
    weights: Floats  # of each slot, what a result of the tuple is worth; empty if all are worth the same
    counters: Counters  # the sketch: side, row, column
    sums: Floats
    state: Int64s


@part
def bucket_of(cell: int, buckets: int) -> np.int64:
    """The bucket of a cell, of a power of two of buckets."""
    mixed = np.uint64(cell) * _GOLDEN
    mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(buckets - 1))


@part
def link_to_bucket(memory: WindowMemory, side: int, slot: int, bucket: int) -> None:
    """Put a tuple in front of its bucket."""
    links = memory.links
    younger_head = memory.heads[side, bucket]
    links[slot, BEFORE] = ~bucket
    links[slot, AFTER] = younger_head
    if younger_head >= 0:
        links[younger_head, BEFORE] = slot
    memory.heads[side, bucket] = slot


@part
def unlink_from_bucket(memory: WindowMemory, side: int, slot: int) -> None:
    """Take a tuple out of its bucket."""
    links = memory.links
    before, after = links[slot, BEFORE], links[slot, AFTER]
    if before < 0:
        memory.heads[side, ~before] = after
    else:
        links[before, AFTER] = after
    if after >= 0:
        links[after, BEFORE] = before


@part
def take_slot(memory: WindowMemory) -> int:
    """A free slot; there must be one. Free slots are chained by ``AFTER``."""
    slot = memory.state[FREE]
    memory.state[FREE] = memory.links[slot, AFTER]
    return slot


@part
def free_slot(memory: WindowMemory, slot: int) -> None:
    """Give a slot back."""
    memory.records[slot, ARRIVAL] = -1
    memory.links[slot, AFTER] = memory.state[FREE]
    memory.state[FREE] = slot


@rare_part
def _compact_ring(memory: WindowMemory, side: int) -> None:
    """Leave only the tuples that are there: at most half of the ring."""
    state, ring, arrivals = memory.state, memory.ring[side], memory.ring_arrivals[side]
    start, mask, kept = state[RING_START + side], ring.size - 1, 0
    for i in range(state[RING_COUNT + side]):
        at = (start + i) & mask
        if memory.records[ring[at], ARRIVAL] == arrivals[at]:
            to = (start + kept) & mask
            ring[to], arrivals[to] = ring[at], arrivals[at]
            kept += 1
    state[RING_COUNT + side] = kept


@part
def append_to_ring(memory: WindowMemory, side: int, slot: int, arrival: int) -> None:
    """Note a tuple as the youngest of its side."""
    state = memory.state
    size = memory.ring.shape[1]
    if state[RING_COUNT + side] == size:
        _compact_ring(memory, side)
    at = (state[RING_START + side] + state[RING_COUNT + side]) & (size - 1)
    memory.ring[side, at], memory.ring_arrivals[side, at] = slot, arrival
    state[RING_COUNT + side] += 1


@part
def oldest_in_ring(memory: WindowMemory, side: int) -> int:
    """The oldest tuple of a side, -1 if there is none; what left before is taken off the ring."""
    state, mask = memory.state, memory.ring.shape[1] - 1
    while state[RING_COUNT + side] > 0:
        at = state[RING_START + side]
        slot = memory.ring[side, at]
        if memory.records[slot, ARRIVAL] == memory.ring_arrivals[side, at]:
            return slot
        state[RING_START + side] = (at + 1) & mask
        state[RING_COUNT + side] -= 1
    return -1


@part
def age_of(memory: WindowMemory, side: int, slot: int) -> int:
    """What a tuple's lifetime is counted from: its time, or its position in a window of tuples."""
    return memory.records[slot, POSITION if memory.state[BY_TUPLES + side] else TIME]


@part
def remaining_life(memory: WindowMemory, side: int, age: int) -> int:
    """Instants after this one at which a tuple of this age can still meet partners (in a window of tuples: how many
    more of its own stream it outlives), at least 0; unbounded is the greatest number."""
    state = memory.state
    window = state[WINDOW + side]
    if window == UNBOUNDED:
        return np.iinfo(np.int64).max
    if state[BY_TUPLES + side]:
        return age + window - state[COUNT + side] + 1
    return age + window - 1 - state[NOW]


@part
def is_expired(memory: WindowMemory, side: int, age: int, now: int) -> bool:
    """Whether a tuple of this age is outside of its side's window at instant ``now``."""
    state = memory.state
    window = state[WINDOW + side]
    if window == UNBOUNDED:
        return False
    if state[BY_TUPLES + side]:
        return state[COUNT + side] - age - 1 >= window
    return now - age >= window


class WindowRows(NamedTuple):
    """Tuples in the order of (time, side, position). Arrays that are empty: all can match; cells and bounds are the
    codes; the sketch finds the classes; weights are 1; costs are 1; there is no queue.

    ``number`` counts the tuples of a side from 0. A tuple is stored in ``cell``, and its partners are in the cells of
    the other side from ``first_cell`` to ``last_cell``, with codes from ``low`` to ``high``. ``queued`` marks those
    that wait in a queue.
    """

    side: Bytes
    time: Int64s
    number: Int64s
    code: Int64s
    possible: Bools
    cell: Int64s
    first_cell: Int64s
    last_cell: Int64s
    low: Int64s
    high: Int64s
    class_: Int32s
    weight: Floats
    cost: Int32s
    queued: Bools
