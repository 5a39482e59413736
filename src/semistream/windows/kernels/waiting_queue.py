"""Queue in front of a window join with a slow processor (WINDOW 2.3): serves tuples, and drops the excess.

The processor serves ``SERVICE`` tuples in ``SERVICE_PER`` instants, in order of arrival. Unused time is lost, except
for one tuple's worth. At each instant the arriving tuples enter the queue, and the processor serves as many as it has
time for. After these are joined, the queue drops its excess over the limit: the least worthy first, and the oldest
among equals.

``cursor`` holds the five words of `semistream.windows.kernels.join_instant`, and then: the first row that has not
arrived, the first row that may be queued, the number of rows served so far, and the end (exclusive) of the time to
serve. The queue consists of the rows from ``FRONT`` to ``ARRIVED`` marked in ``rows.queued``.
"""

import numpy as np

from semistream.kernels.array_types import Int64s
from semistream.kernels.compiler import part, subroutine
from semistream.windows.kernels.held_rows import (
    AFTER,
    ARRIVALS,
    CLOCK,
    CODE,
    COUNT,
    CREDIT,
    DEPARTED,
    DROP_DUE,
    DROPPED,
    HOPELESS,
    KEEP_DEPARTED,
    LEARNT,
    QUEUE_LIMIT,
    QUEUE_MODEL,
    QUEUED,
    SERVICE,
    SERVICE_PER,
    TIME,
    TOTAL,
    UNBOUNDED,
    WINDOW,
    WindowMemory,
    WindowRows,
    bucket_of,
    is_expired,
)
from semistream.windows.kernels.priorities import next_random
from semistream.windows.kernels.sketch import estimate, observe

FOREVER = np.iinfo(np.int64).max
NEVER = -1  # arrival number of the last tuple met by a tuple that never reached the join
ARRIVED, FRONT, SERVED, UNTIL = range(5, 9)  # words of a cursor
CURSOR_WORDS = 9
DEPARTED_COLUMNS = 5

NO_QUEUE, DROP_LEAST_PROBABLE, DROP_AT_RANDOM, DROP_OLDEST, DROP_NEWEST, DROP_BY_PARTNERS = range(6)


@part
def note_passing(memory: WindowMemory, rows: WindowRows, row: int, arrival: int, until: int, departed: Int64s) -> None:
    """Record a tuple that leaves without having been in memory, if departures are kept."""
    state = memory.state
    if state[KEEP_DEPARTED]:
        at = state[DEPARTED]
        departed[at, 0], departed[at, 1] = rows.side[row], ~rows.number[row]
        departed[at, 2], departed[at, 3], departed[at, 4] = arrival, until, rows.time[row]
        state[DEPARTED] = at + 1


@part
def _probability(memory: WindowMemory, rows: WindowRows, row: int) -> float:
    """Return the worth of a tuple under PROB: the expected partners per instant."""
    if rows.class_.size:
        return memory.values[rows.class_[row]]
    other, weight = 1 - np.int64(rows.side[row]), rows.weight[row] if rows.weight.size else 1.0
    total = max(memory.sums[TOTAL], memory.sums[TOTAL + 1], 1.0)
    if not rows.cell.size:
        return estimate(memory, other, rows.code[row]) * weight / total
    found = 0.0
    for cell in range(rows.first_cell[row], rows.last_cell[row] + 1):
        found += estimate(memory, other, cell)
    return found * weight / total


@subroutine
def _partners(memory: WindowMemory, rows: WindowRows, row: int) -> int:
    """Count the tuples in memory that a queued tuple would join."""
    other, found, ranged = 1 - np.int64(rows.side[row]), 0, rows.cell.size > 0
    code, buckets = rows.code[row], memory.heads.shape[1]
    low, high = (rows.low[row], rows.high[row]) if ranged else (code, code)
    first, last = (rows.first_cell[row], rows.last_cell[row]) if ranged else (code, code)
    for cell in range(first, last + 1):
        bucket, seen = bucket_of(cell, buckets), False
        for before in range(first, cell):
            seen |= bucket_of(before, buckets) == bucket
        slot = -1 if seen else memory.heads[other, bucket]
        while slot >= 0:
            if low <= memory.records[slot, CODE] <= high:
                found += not is_expired(memory, other, memory.records[slot, TIME], rows.time[row])
            slot = memory.links[slot, AFTER]
    return found


@part
def _worth(memory: WindowMemory, rows: WindowRows, row: int) -> float:
    """Return the loss if a queued tuple is dropped, by the model of the queue."""
    state = memory.state
    model, side = state[QUEUE_MODEL], np.int64(rows.side[row])
    if model == DROP_LEAST_PROBABLE:
        return _probability(memory, rows, row)
    if model != DROP_BY_PARTNERS:
        return 0.0
    life = np.inf
    if state[WINDOW + side] != UNBOUNDED:
        life = max(np.float64(rows.time[row] + state[WINDOW + side] - 1 - state[CLOCK]), 0.0)
    probability = _probability(memory, rows, row)
    return _partners(memory, rows, row) + (probability * life if probability > 0 else 0.0)


@subroutine
def _drop_one(memory: WindowMemory, rows: WindowRows, cursor: Int64s, departed: Int64s) -> None:
    state, chosen = memory.state, np.int64(-1)
    if state[QUEUE_MODEL] == DROP_AT_RANDOM:
        left = next_random(memory, state[QUEUED])
        for row in range(cursor[FRONT], cursor[ARRIVED]):
            if rows.queued[row]:
                if left == 0:
                    chosen = np.int64(row)
                    break
                left -= 1
    elif state[QUEUE_MODEL] == DROP_NEWEST:
        chosen = cursor[ARRIVED] - 1
        while not rows.queued[chosen]:
            chosen -= 1
    else:
        least = np.inf
        for row in range(cursor[FRONT], cursor[ARRIVED]):
            if rows.queued[row]:
                worth = _worth(memory, rows, row)
                if chosen < 0 or worth < least:
                    chosen, least = np.int64(row), worth
    rows.queued[chosen] = False
    state[QUEUED] -= 1
    state[DROPPED + np.int64(rows.side[chosen])] += 1
    note_passing(memory, rows, chosen, NEVER, NEVER, departed)


@part
def _serve(memory: WindowMemory, rows: WindowRows, cursor: Int64s, served: Int64s, instants: int) -> None:
    """Serve queued tuples for ``instants`` instants and append them to ``served``."""
    state = memory.state
    # Cap the credit at what serves the whole queue: the rest would be lost anyway, and could overflow.
    enough = state[SERVICE_PER] * (state[QUEUED] + 1) // state[SERVICE] + 1
    state[CREDIT] += state[SERVICE] * min(instants, enough)
    while state[CREDIT] >= state[SERVICE_PER] and state[QUEUED] > 0:
        while not rows.queued[cursor[FRONT]]:
            cursor[FRONT] += 1
        rows.queued[cursor[FRONT]] = False
        served[cursor[SERVED]] = cursor[FRONT]
        cursor[SERVED] += 1
        state[QUEUED] -= 1
        state[CREDIT] -= state[SERVICE_PER]
    if state[QUEUED] == 0:
        state[CREDIT] = min(state[CREDIT], state[SERVICE_PER])


@subroutine
def serve_more(memory: WindowMemory, rows: WindowRows, cursor: Int64s, served: Int64s, departed: Int64s) -> bool:
    """Run the queue until it serves a tuple, and append these rows to ``served``; return False if it serves none."""
    state, before = memory.state, cursor[SERVED]
    while True:
        if state[DROP_DUE]:
            while state[QUEUED] > state[QUEUE_LIMIT]:
                _drop_one(memory, rows, cursor, departed)
            state[DROP_DUE] = 0
        over = cursor[ARRIVED] == rows.time.size
        now = cursor[UNTIL] if over else rows.time[cursor[ARRIVED]]
        if now - 1 > state[CLOCK]:
            _serve(memory, rows, cursor, served, now - 1 - state[CLOCK])
            state[CLOCK] = now - 1
            if cursor[SERVED] > before:
                return True
        if over:
            return False
        while cursor[ARRIVED] < rows.time.size and rows.time[cursor[ARRIVED]] == now:
            row = cursor[ARRIVED]
            side = np.int64(rows.side[row])
            state[COUNT + side] += 1
            if rows.possible.size > 0 and not rows.possible[row]:
                state[HOPELESS + side] += 1
                note_passing(memory, rows, row, state[ARRIVALS], FOREVER, departed)
            else:
                rows.queued[row] = True
                state[QUEUED] += 1
                if state[LEARNT]:
                    observe(memory, side, rows.cell[row] if rows.cell.size else rows.code[row])
            cursor[ARRIVED] += 1
        state[CLOCK] = now
        _serve(memory, rows, cursor, served, 1)
        state[DROP_DUE] = 1
        if cursor[SERVED] > before:
            return True
