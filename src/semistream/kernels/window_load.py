"""Put tuples that were in the memory of a window join into a new, empty one: it grows, or a state is restored."""

import numpy as np

from semistream.kernels.types import Int64s
from semistream.kernels.window_classes import AT_RANDOM, enter_class
from semistream.kernels.window_memory import (
    ARRIVAL,
    CLASS,
    CODE,
    COST,
    LIVE,
    OLDER,
    ORIGIN,
    POLICY,
    POSITION,
    TIME,
    USED,
    Floats,
    WindowMemory,
    append_to_ring,
    bucket_of,
    kernel,
    link_to_bucket,
    take_slot,
)

SIDE_COLUMN, CODE_COLUMN, TIME_COLUMN, POSITION_COLUMN, ARRIVAL_COLUMN, ORIGIN_COLUMN = range(6)
CLASS_COLUMN, COST_COLUMN, DRAW_COLUMN = range(6, 9)
DUMPED_COLUMNS = 9


@kernel
def load_tuples(memory: WindowMemory, tuples: Int64s, cells: Int64s, weights: Floats) -> None:
    """Enter tuples in the order of their arrival, each where it was: in its class, and in its place of the pool.

    ``tuples`` has a row for each, with the columns named above; ``cells`` are theirs, empty if they are their codes.
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
