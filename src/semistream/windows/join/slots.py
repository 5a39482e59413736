"""Allocation and transfer of the arrays that hold the tuples of a window join."""

from __future__ import annotations

import numpy as np

from semistream.kernels.array_types import Floats, Int64s
from semistream.windows.kernels.held_rows import (
    AFTER,
    ARRIVAL,
    CLASS,
    CODE,
    COST,
    FREE,
    LIVE,
    OLDER,
    ORIGIN,
    POSITION,
    RING_COUNT,
    RING_START,
    STATE_WORDS,
    SUMS,
    TIME,
    USED,
    WORDS,
    WindowMemory,
)
from semistream.windows.kernels.priorities import DUMPED_COLUMNS, load_tuples, mark_words

SLOT_BYTES = 64 + 16 + 72 + 8
"""Bytes per tuple besides its columns: its slot, and its share of the buckets, the rings and the pool."""

ROOMY_SLOT_BYTES = 360
"""Same for a memory in bytes: slots grow by a quarter at a time, and old and new ones coexist for a moment."""

CLASS_BYTES = 2 * (4 + 4 + 8) + 8 + 1
"""Bytes per priority class."""

_LEAST_SLOTS = 64


def make_memory(slots: int, values: Floats, *, sketch_width: int, weighted: bool, pooled: bool) -> WindowMemory:
    """Return empty arrays for at least ``slots`` tuples; ``values`` are the values of the classes, ascending."""
    size = max(_LEAST_SLOTS, slots)
    buckets = 1 << (size - 1).bit_length()
    ring = 1 << (size + size // 2 - 1).bit_length()
    classes = values.size
    # Align slots to cache lines: a fresh array of this size starts at the 16th byte of a page, so cut off the front.
    raw = np.zeros(size * WORDS + WORDS, np.int64)
    skip = (-raw.ctypes.data % 64) // 8
    records = raw[skip : skip + size * WORDS].reshape(size, WORDS)
    memory = WindowMemory(
        records=records,
        links=records.view(np.int32),
        heads=np.full((2, buckets), -1, np.int32),
        ring=np.empty((2, ring), np.int32),
        ring_arrivals=np.empty((2, ring), np.int64),
        first=np.full((2, classes), -1, np.int32),
        last=np.full((2, classes), -1, np.int32),
        head_age=np.zeros((2, classes), np.int64),
        marks=np.zeros((2, mark_words(classes)), np.uint64),
        values=np.ascontiguousarray(values, np.float64),
        pool=np.empty((2, size if pooled else 0), np.int32),
        weights=np.empty(size if weighted else 0, np.float64),
        counters=np.zeros((2, 2, sketch_width), np.float32),
        sums=np.zeros(SUMS),
        state=np.zeros(STATE_WORDS, np.int64),
    )
    memory.records[:, ARRIVAL] = -1
    memory.links[:, AFTER] = np.arange(1, size + 1)
    memory.links[-1, AFTER] = -1
    memory.state[FREE] = 0
    return memory


def dump_tuples(memory: WindowMemory) -> tuple[Int64s, Floats]:
    """Return the tuples in memory in order of arrival, in the format of `load_tuples`, and their weights."""
    slots = np.flatnonzero(memory.records[:, ARRIVAL] >= 0)
    slots = slots[np.argsort(memory.records[slots, ARRIVAL], kind="stable")]
    tuples = np.empty((slots.size, DUMPED_COLUMNS), np.int64)
    class_ = memory.links[slots, CLASS]
    words = [CODE, TIME, POSITION, ARRIVAL, ORIGIN]
    tuples[:, 0] = class_ & 1
    tuples[:, 1:6] = memory.records[slots][:, words]
    tuples[:, 6], tuples[:, 7] = class_ >> 1, memory.links[slots, COST]
    tuples[:, 8] = memory.links[slots, OLDER] if memory.pool.size else -1
    return tuples, memory.weights[slots] if memory.weights.size else np.empty(0)


def enlarge(memory: WindowMemory, slots: int, tuples: Int64s, cells: Int64s, weights: Floats) -> WindowMemory:
    """Return a copy of the memory with more slots and these tuples (from `dump_tuples`).

    Empty ``cells`` mean that cells are the codes.
    """
    larger = make_memory(
        slots,
        memory.values,
        sketch_width=memory.counters.shape[2],
        weighted=memory.weights.size > 0,
        pooled=memory.pool.size > 0,
    )
    take_over(larger, memory)
    load_tuples(larger, tuples, cells, weights)
    return larger


def nbytes(memory: WindowMemory) -> int:
    """Return the bytes of all arrays; ``links`` shares the memory of ``records``."""
    return sum(array.nbytes for array in memory) - memory.links.nbytes


def take_over(new: WindowMemory, old: WindowMemory) -> None:
    """Copy everything that does not depend on the number of slots, and reset the counts of tuples in memory."""
    new.counters[:], new.sums[:] = old.counters, old.sums
    free = new.state[FREE]
    new.state[:] = old.state
    new.state[FREE] = free
    for words in (LIVE, USED, RING_START, RING_COUNT):
        new.state[words : words + 2] = 0
