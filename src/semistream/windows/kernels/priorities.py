"""Priority classes: find the tuple that leaves the memory of a window join first.

Tuples of equal value form a class. A class is ordered oldest first, because ties favour the younger tuple (WINDOW
4.2). The first tuple of a class is therefore the first of its class to leave under every policy: by the class alone
(PROB), or by the class and the remaining lifetime (LIFE, EXPECTED). ``marks`` records the non-empty classes: one bit
per class, above these one bit per non-zero word, and so on up to a level of one word. Finding the lowest class reads
one word per level. No heap is needed, and a tuple that expires leaves its class at the same cost.

`load_tuples` enters the tuples of an earlier memory into a new, empty one, when the memory grows or a state is
restored.
"""

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from semistream.kernels.array_types import Floats, Int32s, Int64s
from semistream.kernels.compiler import kernel, part, subroutine
from semistream.windows.kernels.held_rows import (
    ARRIVAL,
    CLASS,
    CODE,
    COST,
    LIVE,
    OLDER,
    ORIGIN,
    POLICY,
    POSITION,
    PRICE,
    RANDOM,
    TIME,
    USED,
    VARIABLE,
    WINDOW,
    YOUNGER,
    WindowMemory,
    age_of,
    append_to_ring,
    bucket_of,
    link_to_bucket,
    remaining_life,
    take_slot,
)

BY_CLASS, BY_LIFE, BY_EXPECTED, AT_RANDOM = range(4)  # policies

_STEP_BITS = 5  # 2**5 classes per octave, so values of a class differ by at most 3 %
_OCTAVES = 64  # below and above 1
_SHIFT = 52 - _STEP_BITS
_BEFORE_FIRST = ((1023 - _OCTAVES) << _STEP_BITS) - 1
GRID_CLASSES = (2 * _OCTAVES << _STEP_BITS) + 1
"""Classes of the grid: class 0 for zero and negative values, then 32 steps per octave from 2**-64 to 2**64."""

_ONE = np.uint64(1)
_LEARNING = 1.0 / 64  # weight of one eviction in the price of a place
_HORIZON = 1.0 / 8  # share of the longer window over which a gain counts
_BELOW_PRICE = 1e-9  # ranks tuples without a gain below all others, and by their value


def mark_words(classes: int) -> int:
    """Return the number of words that ``marks`` needs for this many classes.

    >>> mark_words(64), mark_words(65)
    (1, 3)
    """
    words = total = -(-classes // 64)
    while words > 1:
        words = -(-words // 64)
        total += words
    return total


@kernel
def grid_class(value: float) -> np.int64:
    """Return the class of a value in the grid; classes have the order of the values, up to 3 %."""
    if not value > 0.0:
        return np.int64(0)
    class_: np.int64 = (np.float64(value).view(np.int64) >> _SHIFT) - _BEFORE_FIRST
    return np.int64(1) if class_ < 1 else min(class_, np.int64(GRID_CLASSES - 1))


@kernel
def grid_classes(values: Floats, out: Int32s) -> None:
    """Write the class of each value to ``out``."""
    for i in range(values.size):
        out[i] = grid_class(values[i])


def grid_values() -> Floats:
    """Return the smallest value of each class of the grid.

    >>> grid_values()[[0, 64 * 32 + 1, 65 * 32 + 1]].tolist()
    [0.0, 1.0, 2.0]
    """
    bits = (np.arange(GRID_CLASSES, dtype=np.int64) + _BEFORE_FIRST) << _SHIFT
    values = bits.view(np.float64)
    values[0] = 0.0
    return values


@part
def _mark(memory: WindowMemory, side: int, class_: int) -> None:
    marks, begin, words, at = memory.marks[side], 0, (memory.values.size + 63) >> 6, class_
    while True:
        word = begin + (at >> 6)
        before = marks[word]
        marks[word] = before | (_ONE << np.uint64(at & 63))
        if before != 0 or words == 1:
            return
        begin, at, words = begin + words, at >> 6, (words + 63) >> 6


@part
def _unmark(memory: WindowMemory, side: int, class_: int) -> None:
    marks, begin, words, at = memory.marks[side], 0, (memory.values.size + 63) >> 6, class_
    while True:
        word = begin + (at >> 6)
        marks[word] &= ~(_ONE << np.uint64(at & 63))
        if marks[word] != 0 or words == 1:
            return
        begin, at, words = begin + words, at >> 6, (words + 63) >> 6


@part
def _lowest_class(memory: WindowMemory, side: int) -> np.int64:
    """Return the lowest non-empty class, or -1 if all are empty."""
    marks = memory.marks[side]
    level = marks.size - 1  # start of the top level, which has one word
    if marks[level] == 0:
        return np.int64(-1)
    at = np.int64(trailing_zeros(marks[level]))
    while level > 0:
        below, words = 0, (memory.values.size + 63) >> 6  # the level below the current one
        while below + words < level:
            below, words = below + words, (words + 63) >> 6
        at = (at << 6) + np.int64(trailing_zeros(marks[below + at]))
        level = below
    return at


@part
def enter_class(memory: WindowMemory, side: int, slot: int, class_: int) -> None:
    """Add a tuple, the youngest of its side, to its class, or to the pool for random draws."""
    links, state = memory.links, memory.state
    links[slot, CLASS] = class_ << 1 | side
    if state[POLICY] == AT_RANDOM:
        links[slot, OLDER] = state[LIVE + side]
        memory.pool[side, state[LIVE + side]] = slot
        return
    older = memory.last[side, class_]
    links[slot, OLDER], links[slot, YOUNGER] = older, -1
    memory.last[side, class_] = slot
    if older >= 0:
        links[older, YOUNGER] = slot
        return
    memory.first[side, class_] = slot
    memory.head_age[side, class_] = age_of(memory, side, slot)
    _mark(memory, side, class_)


@part
def leave_class(memory: WindowMemory, side: int, slot: int) -> None:
    """Remove a tuple from its class or pool."""
    links, state = memory.links, memory.state
    if state[POLICY] == AT_RANDOM:
        at, end = links[slot, OLDER], state[LIVE + side] - 1
        moved = memory.pool[side, end]
        memory.pool[side, at] = moved
        links[moved, OLDER] = at
        return
    class_ = links[slot, CLASS] >> 1
    older, younger = links[slot, OLDER], links[slot, YOUNGER]
    if younger >= 0:
        links[younger, OLDER] = older
    else:
        memory.last[side, class_] = older
    if older >= 0:
        links[older, YOUNGER] = younger
        return
    memory.first[side, class_] = younger
    if younger >= 0:
        memory.head_age[side, class_] = age_of(memory, side, younger)
    else:
        _unmark(memory, side, class_)


@part
def learn_price(memory: WindowMemory, side: int) -> None:
    """Move the price of a place towards the PROB worth of the least worthy tuple that stayed, after an eviction."""
    lowest = _lowest_class(memory, side)
    if memory.state[VARIABLE]:
        side, other = 0, _lowest_class(memory, 1 - side)
        lowest = other if lowest < 0 else lowest if other < 0 else min(lowest, other)
    if lowest >= 0:
        memory.sums[PRICE + side] += _LEARNING * (memory.values[lowest] - memory.sums[PRICE + side])


@subroutine
def _least_valuable_class(memory: WindowMemory, side: int) -> tuple[np.int64, float]:
    """Return the class whose oldest tuple is worth least by LIFE or EXPECTED, and that worth; -1 if all are empty."""
    found, least, found_arrival = np.int64(-1), np.inf, np.int64(0)
    expected, price = memory.state[POLICY] == BY_EXPECTED, memory.sums[PRICE + (0 if memory.state[VARIABLE] else side)]
    horizon = np.float64(max(memory.state[WINDOW], memory.state[WINDOW + 1])) * _HORIZON
    marks = memory.marks[side]
    for word in range((memory.values.size + 63) >> 6):
        bits = marks[word]
        while bits != 0:
            class_ = (word << 6) + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            life = np.float64(remaining_life(memory, side, memory.head_age[side, class_]))
            if expected:
                gain = memory.values[class_] - price
                worth = gain * min(life, max(horizon, 1.0)) if gain > 0 else gain * _BELOW_PRICE
            else:
                worth = memory.values[class_] * life
            if worth > least:
                continue
            arrival = memory.records[memory.first[side, class_], ARRIVAL]
            if worth < least or arrival < found_arrival:
                found, least, found_arrival = class_, worth, arrival
    return found, least


@part
def next_random(memory: WindowMemory, below: int) -> np.int64:
    """Draw an integer in [0, below) by SplitMix64 (Steele, Lea & Flood, 2014); the modulo bias is below 2**-32."""
    z = np.uint64(memory.state[RANDOM]) + np.uint64(0x9E3779B97F4A7C15)
    memory.state[RANDOM] = np.int64(z)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.int64((z >> np.uint64(1)) % np.uint64(below))


@part
def least_of(memory: WindowMemory, side: int) -> tuple[int, float]:
    """Return the tuple of a side that leaves first, and its worth; -1 if the side is empty."""
    policy = memory.state[POLICY]
    if policy == AT_RANDOM:
        live = memory.state[LIVE + side]
        return (memory.pool[side, next_random(memory, live)], 0.0) if live else (-1, 0.0)
    if policy == BY_CLASS:
        class_ = _lowest_class(memory, side)
        return (memory.first[side, class_], memory.values[class_]) if class_ >= 0 else (-1, 0.0)
    class_, worth = _least_valuable_class(memory, side)
    return (memory.first[side, class_], worth) if class_ >= 0 else (-1, 0.0)


@subroutine
def least_of_both(memory: WindowMemory) -> tuple[int, int]:
    """Return the side and slot of the tuple that leaves first, if both sides share the memory."""
    live = memory.state[LIVE], memory.state[LIVE + 1]
    if memory.state[POLICY] == AT_RANDOM:
        drawn = next_random(memory, live[0] + live[1])
        return (0, memory.pool[0, drawn]) if drawn < live[0] else (1, memory.pool[1, drawn - live[0]])
    left, left_worth = least_of(memory, 0)
    right, right_worth = least_of(memory, 1)
    if left < 0 or right < 0:
        return (0, left) if right < 0 else (1, right)
    left_arrival, right_arrival = memory.records[left, ARRIVAL], memory.records[right, ARRIVAL]
    if left_worth < right_worth or (left_worth == right_worth and left_arrival < right_arrival):
        return 0, left
    return 1, right


SIDE_COLUMN, CODE_COLUMN, TIME_COLUMN, POSITION_COLUMN, ARRIVAL_COLUMN, ORIGIN_COLUMN = range(6)
CLASS_COLUMN, COST_COLUMN, DRAW_COLUMN = range(6, 9)
DUMPED_COLUMNS = 9


@kernel
def load_tuples(memory: WindowMemory, tuples: Int64s, cells: Int64s, weights: Floats) -> None:
    """Enter tuples in order of arrival, each at its old place: its class, or its position in the pool.

    ``tuples`` has one row per tuple, with the columns named above. ``cells`` holds their cells; empty means the codes.
    """
    records, links, state = memory.records, memory.links, memory.state
    for i in range(tuples.shape[0]):
        side, arrival = tuples[i, SIDE_COLUMN], tuples[i, ARRIVAL_COLUMN]
        slot = take_slot(memory)
        records[slot, CODE], records[slot, TIME] = tuples[i, CODE_COLUMN], tuples[i, TIME_COLUMN]
        records[slot, POSITION], records[slot, ARRIVAL] = tuples[i, POSITION_COLUMN], arrival
        records[slot, ORIGIN], links[slot, COST] = tuples[i, ORIGIN_COLUMN], tuples[i, COST_COLUMN]
        if memory.weights.size:
            memory.weights[slot] = weights[i]
        cell = cells[i] if cells.size else tuples[i, CODE_COLUMN]
        link_to_bucket(memory, side, slot, bucket_of(cell, memory.heads.shape[1]))
        append_to_ring(memory, side, slot, arrival)
        if state[POLICY] == AT_RANDOM:
            links[slot, CLASS] = np.int32(tuples[i, CLASS_COLUMN] << 1 | side)
            links[slot, OLDER] = tuples[i, DRAW_COLUMN]
            memory.pool[side, tuples[i, DRAW_COLUMN]] = slot
        else:
            enter_class(memory, side, slot, tuples[i, CLASS_COLUMN])
        state[LIVE + side] += 1
        state[USED + side] += tuples[i, COST_COLUMN]
