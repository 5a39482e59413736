"""One pass over the tuples of two streams in time order: expire, probe, admit, evict.

The tuples of one instant arrive together (WINDOW 2.1, 6.1.1). First, expired tuples leave. Then each arriving tuple
is joined with the other side's tuples, both those in memory and those arriving with it, and enters the memory. Last,
the tuples leave that no later instant can use, and then the least worthy ones, new or old, until the capacity holds.
The memory exceeds its capacity only during an instant: by the "two additional buffer cells for the new arriving tuple
of each stream" of 2.3, and by more if more tuples arrive at once.
"""

import numpy as np

from semistream.kernels.array_types import Int32s, Int64s
from semistream.kernels.compiler import kernel, part, subroutine
from semistream.windows.kernels.held_rows import (
    AFTER,
    ARRIVAL,
    ARRIVALS,
    BY_TUPLES,
    CAPACITY,
    CLASS,
    CODE,
    COST,
    COUNT,
    DECAY_AT,
    DEPARTED,
    EVICTED,
    EXPIRED,
    HALF_LIFE,
    HOPELESS,
    KEEP_DEPARTED,
    LEARNT,
    LIVE,
    LOST,
    NOW,
    ORIGIN,
    POLICY,
    POSITION,
    QUEUE_MODEL,
    REFRESH,
    REFRESH_AT,
    RING_COUNT,
    RING_START,
    SEEN,
    TIME,
    TOTAL,
    UNBOUNDED,
    USED,
    VARIABLE,
    WINDOW,
    WindowMemory,
    WindowRows,
    age_of,
    append_to_ring,
    bucket_of,
    free_slot,
    is_expired,
    link_to_bucket,
    oldest_in_ring,
    remaining_life,
    take_slot,
    unlink_from_bucket,
)
from semistream.windows.kernels.priorities import (
    BY_EXPECTED,
    enter_class,
    grid_class,
    learn_price,
    least_of,
    least_of_both,
    leave_class,
)
from semistream.windows.kernels.sketch import decay, estimate, observe
from semistream.windows.kernels.waiting_queue import FOREVER, NO_QUEUE, SERVED, note_passing, serve_more

_BEGIN, _PROBE, _CHAIN = range(3)  # phases


@part
def _note_departure(memory: WindowMemory, side: int, slot: int, until: int, departed: Int64s) -> None:
    state, records = memory.state, memory.records
    if state[KEEP_DEPARTED]:
        at = state[DEPARTED]
        departed[at, 0], departed[at, 1] = side, records[slot, ORIGIN]
        departed[at, 2], departed[at, 3], departed[at, 4] = records[slot, ARRIVAL], until, records[slot, TIME]
        state[DEPARTED] = at + 1


@part
def _remove(memory: WindowMemory, side: int, slot: int) -> None:
    state = memory.state
    unlink_from_bucket(memory, side, slot)
    leave_class(memory, side, slot)
    state[LIVE + side] -= 1
    state[USED + side] -= memory.links[slot, COST]
    free_slot(memory, slot)


@part
def expire(memory: WindowMemory, now: int, departed: Int64s) -> None:
    """Remove the tuples outside their window at instant ``now``."""
    for side in range(2):
        if memory.state[WINDOW + side] == UNBOUNDED:
            continue
        slot = oldest_in_ring(memory, side)
        while slot >= 0 and is_expired(memory, side, age_of(memory, side, slot), now):
            memory.state[EXPIRED + side] += 1
            _note_departure(memory, side, slot, FOREVER, departed)
            _remove(memory, side, slot)
            slot = oldest_in_ring(memory, side)


@kernel
def expire_tuples(memory: WindowMemory, now: int, departed: Int64s) -> None:
    """Remove the tuples outside their window at an instant without arrivals; ``departed`` as in `join_rows`."""
    expire(memory, now, departed)


@part
def _evict(memory: WindowMemory, side: int, slot: int, departed: Int64s) -> None:
    state = memory.state
    state[EVICTED + side] += 1
    if state[WINDOW + side] != UNBOUNDED:
        total = max(memory.sums[TOTAL], memory.sums[TOTAL + 1]) if state[LEARNT] else 1.0
        life = np.float64(remaining_life(memory, side, age_of(memory, side, slot)))
        memory.sums[LOST + side] += memory.values[memory.links[slot, CLASS] >> 1] / max(total, 1.0) * life
    _note_departure(memory, side, slot, state[ARRIVALS] - 1, departed)
    _remove(memory, side, slot)
    if state[POLICY] == BY_EXPECTED:
        learn_price(memory, side)


@part
def _fit(memory: WindowMemory, departed: Int64s) -> None:
    """Evict the least worthy tuples until the capacity holds, of each side or of both together."""
    state = memory.state
    if state[VARIABLE]:
        while state[USED] + state[USED + 1] > state[CAPACITY]:
            side, slot = least_of_both(memory)
            _evict(memory, side, slot, departed)
        return
    for side in range(2):
        while state[USED + side] > state[CAPACITY + side]:
            slot, _ = least_of(memory, side)
            _evict(memory, side, slot, departed)


@part
def _admit(memory: WindowMemory, rows: WindowRows, row: int, placed: Int32s) -> None:
    state, records, links = memory.state, memory.records, memory.links
    side, code = np.int64(rows.side[row]), rows.code[row]
    slot = take_slot(memory)
    records[slot, CODE], records[slot, TIME] = code, rows.time[row]
    records[slot, POSITION], records[slot, ARRIVAL] = state[SEEN + side], state[ARRIVALS]
    records[slot, ORIGIN] = ~rows.number[row]
    cell = rows.cell[row] if rows.cell.size else code
    cost = rows.cost[row] if rows.cost.size else 1
    links[slot, COST] = cost
    weight = 1.0
    if memory.weights.size:
        weight = rows.weight[row]
        memory.weights[slot] = weight
    if rows.class_.size:
        class_ = np.int64(rows.class_[row])
    elif rows.cell.size:
        total = 0.0
        for other in range(rows.first_cell[row], rows.last_cell[row] + 1):
            total += estimate(memory, 1 - side, other)
        class_ = grid_class(total * weight)
    else:
        class_ = grid_class(estimate(memory, 1 - side, code) * weight)
    link_to_bucket(memory, side, slot, bucket_of(cell, memory.heads.shape[1]))
    append_to_ring(memory, side, slot, state[ARRIVALS])
    enter_class(memory, side, slot, class_)
    state[LIVE + side] += 1
    state[USED + side] += cost
    placed[side, rows.number[row]] = slot


@subroutine
def _reclassify(memory: WindowMemory) -> None:
    """Move every tuple to the class of its current estimate; classes stay in order of arrival."""
    state = memory.state
    for side in range(2):
        for class_ in range(memory.values.size):
            memory.first[side, class_] = memory.last[side, class_] = -1
        for word in range(memory.marks.shape[1]):
            memory.marks[side, word] = np.uint64(0)
        mask = memory.ring.shape[1] - 1
        start = state[RING_START + side]
        for i in range(state[RING_COUNT + side]):
            at = (start + i) & mask
            slot = memory.ring[side, at]
            if memory.records[slot, ARRIVAL] == memory.ring_arrivals[side, at]:
                value = estimate(memory, 1 - side, memory.records[slot, CODE])
                if memory.weights.size:
                    value *= memory.weights[slot]
                enter_class(memory, side, slot, grid_class(value))


@subroutine
def _learn_more(memory: WindowMemory, by_code: bool) -> None:
    """Decay the sketch and reclassify the tuples in memory, if due. Called after each instant."""
    state = memory.state
    if state[ARRIVALS] >= state[DECAY_AT]:
        decay(memory)
        state[DECAY_AT] = state[ARRIVALS] + state[HALF_LIFE]
    if state[ARRIVALS] >= state[REFRESH_AT]:
        if by_code:
            _reclassify(memory)
        state[REFRESH_AT] = state[ARRIVALS] + state[REFRESH]


@kernel
def join_rows(  # noqa: PLR0915  # one pass; parts would have to pass its state on
    memory: WindowMemory,
    rows: WindowRows,
    cursor: Int64s,
    served: Int64s,
    placed: Int32s,
    departed: Int64s,
    out_left: Int64s,
    out_right: Int64s,
) -> tuple[int, bool]:
    """Write the origins of joined pairs to ``out_left`` and ``out_right``; return their number, and True when done.

    False means that the output is full: call again to go on from ``cursor``. The origin of a tuple is stored in its
    slot: the number of its stored row, or ``~number`` if it arrived in ``rows``. ``placed[side, number]`` receives
    the slot of each row. ``departed`` receives (side, origin, arrival, until, time) of each tuple that leaves, if
    ``KEEP_DEPARTED`` is set. ``until`` is the arrival number of the last tuple it met, or `FOREVER` if it expired.
    With a slow processor, ``served`` has one entry per row and receives the rows that the queue lets through
    (`semistream.windows.kernels.waiting_queue`).
    """
    state, records, links = memory.state, memory.records, memory.links
    found, buckets, ranged = 0, memory.heads.shape[1], rows.cell.size > 0
    queued = state[QUEUE_MODEL] != NO_QUEUE
    turn, phase, slot, cell, end = cursor[0], cursor[1], cursor[2], cursor[3], cursor[4]
    while True:
        if phase == _BEGIN:
            # Finish the previous instant, even if it was in another call or the capacity has changed since.
            if not queued:  # other tuples of that instant may still be in the queue
                expire(memory, state[NOW] + 1, departed)
            _fit(memory, departed)
            if state[LEARNT]:
                _learn_more(memory, not ranged)
            if queued:
                if turn == cursor[SERVED] and not serve_more(memory, rows, cursor, served, departed):
                    break
            elif turn == rows.time.size:
                break
            now = rows.time[served[turn] if queued else turn]
            end = turn + queued  # a slow processor takes one at a time
            while not queued and end < rows.time.size and rows.time[end] == now:
                state[COUNT + np.int64(rows.side[end])] += 1
                end += 1
            state[NOW] = now
            expire(memory, now, departed)
            phase = _PROBE
        row = served[turn] if queued else turn
        side, code, now = np.int64(rows.side[row]), rows.code[row], rows.time[row]
        other = 1 - side
        if phase == _PROBE:
            hopeless = rows.possible.size > 0 and not rows.possible[row]
            gone = is_expired(memory, side, state[SEEN + side] if state[BY_TUPLES + side] else now, now)
            if hopeless or gone:
                state[HOPELESS + side] += hopeless
                state[EXPIRED + side] += gone and not hopeless
                note_passing(memory, rows, row, state[ARRIVALS], FOREVER, departed)
            else:
                if state[LEARNT] and not queued:
                    observe(memory, side, rows.cell[row] if ranged else code)
                cell = rows.first_cell[row] if ranged else code
                slot = memory.heads[other, bucket_of(cell, buckets)]
                phase = _CHAIN
        if phase == _CHAIN:
            low, high = (rows.low[row], rows.high[row]) if ranged else (code, code)
            last_cell = rows.last_cell[row] if ranged else code
            while True:
                while slot >= 0:
                    stored = records[slot, CODE]
                    if low <= stored <= high:
                        if found == out_left.size:
                            cursor[0], cursor[1], cursor[2], cursor[3], cursor[4] = turn, phase, slot, cell, end
                            return found, False
                        own = ~rows.number[row]
                        out_left[found] = own if side == 0 else records[slot, ORIGIN]
                        out_right[found] = records[slot, ORIGIN] if side == 0 else own
                        found += 1
                    slot = links[slot, AFTER]
                if cell == last_cell:
                    break
                cell += 1
                bucket = bucket_of(cell, buckets)
                seen = False
                for before in range(rows.first_cell[row], cell):
                    seen |= bucket_of(before, buckets) == bucket
                slot = -1 if seen else memory.heads[other, bucket]
            _admit(memory, rows, row, placed)
            phase = _PROBE
        state[SEEN + side] += 1
        state[ARRIVALS] += 1
        turn += 1
        if turn == end:
            phase = _BEGIN
    cursor[0], cursor[1] = turn, _BEGIN
    return found, True
