"""Memory of a window join: tuples of two streams in slots, found by key, by age and by priority.

`WindowMemory` holds the tuples in memory, `WindowRows` the arriving ones. A slot is one row of ``records``, 64 bytes,
so a tuple fills one CPU cache line. ``links`` is the same memory as 32-bit words. ``ARRIVAL`` is -1 in a free slot.
Three structures cover the slots, one of each per side:

- Buckets of a hash table: ``heads[side, bucket]`` is the youngest tuple, ``AFTER`` the next older one. ``BEFORE`` is
  the next younger one, or ``~bucket`` for the youngest.
- A ring of tuples in order of arrival, from which expired tuples are removed. An evicted tuple stays in the ring
  until its turn comes; its arrival number then differs from that of its slot.
- A chain for each priority class, oldest first (`semistream.windows.kernels.priorities`), or a pool for random draws.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Bytes, Floats, Int32s, Int64s, UInt64s
from semistream.kernels.compiler import part, subroutine

Counters = npt.NDArray[np.float32]

WORDS = 8  # 64-bit words of a slot
CODE, TIME, POSITION, ARRIVAL, ORIGIN = range(5)  # 64-bit words
BEFORE, AFTER, OLDER, YOUNGER, CLASS, COST = range(10, 16)  # 32-bit words; CLASS is class << 1 | side

# Indices into `state`. A name that exists for both sides is the index of the left one; the right one follows it.
LIVE, USED, SEEN, COUNT, RING_START, RING_COUNT, EXPIRED, EVICTED, HOPELESS = range(0, 18, 2)
FREE, ARRIVALS, NOW, RANDOM, REFRESH_AT, DECAY_AT, DEPARTED = range(18, 25)
POLICY, VARIABLE, LEARNT, HALF_LIFE, REFRESH, KEEP_DEPARTED = range(25, 31)
CAPACITY, WINDOW, BY_TUPLES = range(31, 37, 2)
DROPPED = 37
QUEUE_MODEL, QUEUE_LIMIT, QUEUED, SERVICE, SERVICE_PER, CREDIT, CLOCK, DROP_DUE = range(39, 47)
STATE_WORDS = 47
UNBOUNDED = -1  # value of a window
# Indices into `sums`, for each side: tuples counted by the sketch, estimated results lost to evictions, and the moving
# average of the lowest worth kept.
TOTAL, LOST, PRICE = range(0, 6, 2)
SUMS = 6

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class WindowMemory(NamedTuple):
    """Arrays of the memory. A first dimension of two is the side. The names above index ``sums`` and ``state``."""

    records: Int64s
    links: Int32s
    heads: Int32s
    ring: Int32s
    ring_arrivals: Int64s
    first: Int32s  # oldest tuple of each class
    last: Int32s
    head_age: Int64s  # time (or position) of the oldest tuple of each class
    marks: UInt64s  # one bit per non-empty class, then one bit per non-zero word, and so on
    values: Floats  # value of each class
    pool: Int32s
    weights: Floats  # weight of a result of each slot's tuple; empty if all weigh the same
    counters: Counters  # sketch: side, row, column
    sums: Floats
    state: Int64s


@part
def bucket_of(cell: int, buckets: int) -> np.int64:
    """Return the bucket of a cell; ``buckets`` is a power of two."""
    mixed = np.uint64(cell) * _GOLDEN
    mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(buckets - 1))


@part
def link_to_bucket(memory: WindowMemory, side: int, slot: int, bucket: int) -> None:
    """Insert a tuple at the front of a bucket."""
    links = memory.links
    younger_head = memory.heads[side, bucket]
    links[slot, BEFORE] = ~bucket
    links[slot, AFTER] = younger_head
    if younger_head >= 0:
        links[younger_head, BEFORE] = slot
    memory.heads[side, bucket] = slot


@part
def unlink_from_bucket(memory: WindowMemory, side: int, slot: int) -> None:
    """Remove a tuple from its bucket."""
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
    """Return a free slot; there must be one. ``AFTER`` chains the free slots."""
    slot = memory.state[FREE]
    memory.state[FREE] = memory.links[slot, AFTER]
    return slot


@part
def free_slot(memory: WindowMemory, slot: int) -> None:
    """Return a slot to the free ones."""
    memory.records[slot, ARRIVAL] = -1
    memory.links[slot, AFTER] = memory.state[FREE]
    memory.state[FREE] = slot


@subroutine
def _compact_ring(memory: WindowMemory, side: int) -> None:
    """Remove the tuples that have left; the rest fill at most two thirds of the ring."""
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
    """Append a tuple to the ring as the youngest of its side."""
    state = memory.state
    size = memory.ring.shape[1]
    if state[RING_COUNT + side] == size:
        _compact_ring(memory, side)
    at = (state[RING_START + side] + state[RING_COUNT + side]) & (size - 1)
    memory.ring[side, at], memory.ring_arrivals[side, at] = slot, arrival
    state[RING_COUNT + side] += 1


@part
def oldest_in_ring(memory: WindowMemory, side: int) -> int:
    """Return the oldest tuple of a side, or -1 if there is none; remove tuples that have left from the ring's start."""
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
    """Return the start of a tuple's lifetime: its time, or its position in a window of tuples."""
    return memory.records[slot, POSITION if memory.state[BY_TUPLES + side] else TIME]


@part
def remaining_life(memory: WindowMemory, side: int, age: int) -> int:
    """Return how long a tuple of this age can still meet partners: at least 0, and the largest integer if unbounded.

    Counted in instants after this one, or in a window of tuples, in further tuples of its own stream that it outlives.
    """
    state = memory.state
    window = state[WINDOW + side]
    if window == UNBOUNDED:
        return np.iinfo(np.int64).max
    if state[BY_TUPLES + side]:
        return age + window - state[COUNT + side] + 1
    return age + window - 1 - state[NOW]


@part
def is_expired(memory: WindowMemory, side: int, age: int, now: int) -> bool:
    """True if a tuple of this age is outside its side's window at instant ``now``."""
    state = memory.state
    window = state[WINDOW + side]
    if window == UNBOUNDED:
        return False
    if state[BY_TUPLES + side]:
        return state[COUNT + side] - age - 1 >= window
    return now - age >= window


class WindowRows(NamedTuple):
    """Arriving tuples in the order of (time, side, position).

    ``number`` counts the tuples of a side from 0. A tuple is stored in ``cell``; its partners are in the other side's
    cells from ``first_cell`` to ``last_cell``, with codes from ``low`` to ``high``. ``queued`` marks tuples that wait
    in a queue.

    Some arrays may be empty. Then all tuples can match (``possible``), cells and bounds equal the codes, classes come
    from the sketch (``class_``), weights and costs are 1, and there is no queue (``queued``).
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
