"""InstantJoin: joins the tuples of complete instants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Floats, Int32s, Int64s
from semistream.windows.join.archive import Archive
from semistream.windows.join.capacity import Allocation, Capacity, Memory
from semistream.windows.join.results import ResultRows
from semistream.windows.join.row_store import COPIES, row_bytes
from semistream.windows.join.slots import (
    CLASS_BYTES,
    ROOMY_SLOT_BYTES,
    SLOT_BYTES,
    dump_tuples,
    enlarge,
    make_memory,
    nbytes,
)
from semistream.windows.join.slow_cpu import SlowCpu
from semistream.windows.join.window_stats import StreamCounts, WindowStats
from semistream.windows.join.worth import NewTuples, Worth
from semistream.windows.kernels.held_rows import (
    ARRIVAL,
    BY_TUPLES,
    CAPACITY,
    CLASS,
    CLOCK,
    COUNT,
    DECAY_AT,
    DEPARTED,
    DROPPED,
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
    QUEUE_LIMIT,
    QUEUE_MODEL,
    RANDOM,
    REFRESH,
    REFRESH_AT,
    SERVICE,
    SERVICE_PER,
    VARIABLE,
    WINDOW,
)
from semistream.windows.kernels.join_instant import expire_tuples, join_rows
from semistream.windows.kernels.priorities import (
    ARRIVAL_COLUMN,
    CODE_COLUMN,
    COST_COLUMN,
    ORIGIN_COLUMN,
    SIDE_COLUMN,
    TIME_COLUMN,
)
from semistream.windows.kernels.waiting_queue import ARRIVED, CURSOR_WORDS, DEPARTED_COLUMNS, FOREVER, UNTIL
from semistream.windows.policies import Policy, Random, WeighingPolicy
from semistream.windows.probabilities import LearntProbabilities
from semistream.windows.streams.arrivals import BEGINNING, Arrivals, ReadyRows, largest_instant, merge_rows, no_rows
from semistream.windows.streams.lengths import WindowLength
from semistream.windows.streams.window_match import WindowMatch

_USUAL_TUPLES = 65_536  # number of tuples that learning is sized for without a memory limit
_FIRST_SLOTS = 1 << 20  # largest initial allocation
_COUNTER_BYTES = 2 * 2 * 4  # of one sketch column: two streams, two rows


class InstantJoin:
    """Memory and statistics of a window join; `WindowJoin` describes its behaviour."""

    def __init__(
        self,
        schemas: tuple[pa.Schema, pa.Schema],
        condition: WindowMatch,
        windows: tuple[WindowLength, WindowLength],
        policy: Policy,
        results: ResultRows,
        *,
        memory: Memory,
        allocation: Allocation,
        archive: Archive | None,
        cpu: SlowCpu | None,
        batch_rows: int,
    ) -> None:
        self._schemas, self._condition, self._policy = schemas, condition, policy
        self._allocation, self._archive, self._cpu = allocation, archive, cpu
        self.queue = (no_rows(schemas[0]), no_rows(schemas[1]))
        self.results = results
        self._worth = Worth.of(policy, condition, weighted=results.weight is not None)
        self._least_tuple_bytes = ROOMY_SLOT_BYTES + COPIES * min(len(schemas[0]), len(schemas[1]))
        source = policy.probabilities if isinstance(policy, WeighingPolicy) else None
        learns = isinstance(source, LearntProbabilities)
        sizes = source.sized(self._tuples_meant(memory)) if isinstance(source, LearntProbabilities) else (0, 0, 0)
        self._sketch_width = sizes[2]
        self.capacity = self._capacity(memory)
        self.windows = windows
        self.memory = make_memory(
            min(self._most_tuples + 2, _FIRST_SLOTS) if self.capacity.limited and not isinstance(memory, str) else 0,
            self._worth.values,
            sketch_width=self._sketch_width,
            weighted=results.weight is not None and learns,
            pooled=isinstance(policy, Random),
        )
        state = self.memory.state
        state[POLICY], state[LEARNT] = policy.code, learns
        self.keep_departed()
        state[HALF_LIFE], state[REFRESH] = state[DECAY_AT], state[REFRESH_AT] = sizes[:2]
        state[RANDOM] = policy.seed if isinstance(policy, Random) else 0
        state[NOW] = BEGINNING
        if cpu is not None:
            state[QUEUE_MODEL], state[QUEUE_LIMIT] = cpu.code, cpu.queue
            state[SERVICE], state[SERVICE_PER] = cpu.rate.as_integer_ratio()
        self._write_limits()
        self._out = np.empty(batch_rows, np.int64), np.empty(batch_rows, np.int64)
        self.first_instant = 0
        if archive is not None:
            archive.begin(windows)

    def keep_departed(self) -> None:
        """Make the kernel record departing tuples if there is an archive."""
        self.memory.state[KEEP_DEPARTED] = self._archive is not None

    def set_windows(self, windows: tuple[WindowLength, WindowLength]) -> None:
        """Change the windows from the next instant on."""
        if self._cpu is not None and self._archive is not None:
            raise InvalidArgument(
                "windows cannot change with a slow processor and an archive: tuples of one instant would be joined "
                "under the old and the new windows. Make a new operator for the new windows."
            )
        kinds_change = [window.by_tuples for window in self.windows] != [window.by_tuples for window in windows]
        self.windows = windows
        self._write_limits()
        if kinds_change:  # ages are counted in another unit
            self._enlarge(self.memory.records.shape[0])
        self.note_windows()

    def set_memory(self, memory: Memory) -> None:
        """Change the capacity, and evict the excess."""
        before, self.capacity = self.capacity, self._capacity(memory)
        self._write_limits()
        if before.unit_is_bytes != self.capacity.unit_is_bytes:
            self._count_anew()
        if self._has_begun:  # a pass without new tuples evicts; the queue stays as it is
            for _ in self._join(self.queue, int(self.memory.state[CLOCK]) + 1):
                raise AssertionError("no tuple has arrived")

    def arrive(self, arrivals: Sequence[Arrivals], frontier: int) -> Iterator[pa.RecordBatch]:
        """Join all tuples with times before ``frontier``."""
        ready = (arrivals[0].ready(frontier), arrivals[1].ready(frontier))
        if self._cpu is not None:
            ready = (self.queue[0].followed_by(ready[0]), self.queue[1].followed_by(ready[1]))
        if ready[0].times.size or ready[1].times.size:
            yield from self._join(ready, frontier)

    def expire(self, frontier: int) -> None:
        """Remove the tuples that have expired before ``frontier``, without waiting for an arrival to push them out."""
        if self._cpu is not None or not self._has_begun:  # queued tuples belong to earlier instants
            return
        departed = self._room_for_departed(0)
        expire_tuples(self.memory, frontier, departed)
        nothing = (no_rows(self._schemas[0]).batch, no_rows(self._schemas[1]).batch)
        self._archive_departed(departed, nothing)
        for side in range(2):
            self._store(side, nothing[side], np.empty(0, np.int32))

    def archive_rest(self) -> None:
        """Archive the tuples in memory at the end of the streams."""
        if self._archive is None:
            return
        tuples, _ = dump_tuples(self.memory)
        departed = np.empty((tuples.shape[0], DEPARTED_COLUMNS), np.int64)
        departed[:, 3] = FOREVER
        departed[:, [0, 1, 2, 4]] = tuples[:, [SIDE_COLUMN, ORIGIN_COLUMN, ARRIVAL_COLUMN, TIME_COLUMN]]
        self.memory.state[DEPARTED] = tuples.shape[0]
        self._archive_departed(departed, (no_rows(self._schemas[0]).batch, no_rows(self._schemas[1]).batch))

    def stats(self) -> WindowStats:
        """Return the counts of all tuples that have arrived."""
        state = self.memory.state
        left, right = (
            StreamCounts(
                null_keys=int(state[HOPELESS + side]),
                in_memory=int(state[LIVE + side]),
                expired=int(state[EXPIRED + side]),
                evicted=int(state[EVICTED + side]),
                queued=self.queue[side].times.size,
                dropped=int(state[DROPPED + side]),
            )
            for side in range(2)
        )
        return WindowStats(left, right, self.results.count, self.results.total_weight, self._missing_estimate())

    @property
    def _has_begun(self) -> bool:
        return bool(self.memory.state[COUNT] + self.memory.state[COUNT + 1])

    def _missing_estimate(self) -> float | None:
        """Estimate the results lost to evictions; None for random eviction or unbounded windows.

        The kernel sums class value times remaining life. A class value is in partners per tuple of the longer stream,
        a life in instants; the rate of the longer stream converts the sum into results.
        """
        state = self.memory.state
        if isinstance(self._policy, Random) or not all(window.bounded for window in self.windows):
            return None
        missing = 0.0
        for side in range(2):
            if state[EVICTED + side]:
                elapsed = state[COUNT + side] if state[BY_TUPLES + side] else state[NOW] - self.first_instant + 1
                missing += self.memory.sums[LOST + side] * max(state[COUNT], state[COUNT + 1]) / elapsed
        return float(missing)

    def _join(self, ready: tuple[ReadyRows, ReadyRows], frontier: int) -> Iterator[pa.RecordBatch]:
        if not self._has_begun:
            self.first_instant = min(int(side.times[0]) for side in ready if side.times.size)
            self.memory.state[CLOCK] = self.first_instant - 1
        batches = (ready[0].batch, ready[1].batch)
        codes = [self._condition.codes(side, batches[side]) for side in range(2)]
        weights = [self._weights(side, batches[side]) for side in range(2)]
        classes = [self._worth.classes(NewTuples(side, batches[side], codes[side], weights[side])) for side in range(2)]
        costs = [self._costs(batch) for batch in batches]
        queued = None if self._cpu is None else self.queue[0].times.size + self.queue[1].times.size
        rows = merge_rows([side.times for side in ready], codes, classes, weights, costs, queued)
        self._make_room(rows.time)
        placed = np.full((2, max(batch.num_rows for batch in batches)), -1, np.int32)
        departed = self._room_for_departed(rows.time.size)
        cursor = np.zeros(CURSOR_WORDS, np.int64)
        cursor[ARRIVED], cursor[UNTIL] = queued or 0, frontier
        served = np.empty(0 if queued is None else rows.time.size, np.int64)
        left, right = self._out
        over = False
        while not over:
            found, over = join_rows(self.memory, rows, cursor, served, placed, departed, left, right)
            if found and (result := self.results.joined(left[:found], right[:found], batches)).num_rows:
                yield result
        self._archive_departed(departed, batches)
        for side in range(2):
            self._store(side, batches[side], placed[side, : batches[side].num_rows])
        if self._cpu is not None:
            left_over = [rows.number[rows.queued & (rows.side == side)] for side in range(2)]
            self.queue = (ready[0].taken(left_over[0]), ready[1].taken(left_over[1]))

    def _weights(self, side: int, batch: pa.RecordBatch) -> Floats | None:
        return None if self.results.weight is None else self.results.weight.of_tuples(side, batch)

    def _costs(self, batch: pa.RecordBatch) -> Int32s | None:
        if not self.capacity.unit_is_bytes:
            return None
        return np.minimum(ROOMY_SLOT_BYTES + COPIES * row_bytes(batch), 2**31 - 1).astype(np.int32)

    def _store(self, side: int, batch: pa.RecordBatch, slots: Int32s) -> None:
        """Store the rows of arriving tuples that are still in memory."""
        records, links = self.memory.records, self.memory.links
        here = (slots >= 0) & (records[slots, ORIGIN] == ~np.arange(slots.size)) & (records[slots, ARRIVAL] >= 0)
        here &= (links[slots, CLASS] & 1) == side
        # An uncopied batch may be a slice of a larger one and would keep that alive; copy it if memory is in bytes.
        whole = here.all() and not self.capacity.unit_is_bytes
        kept = batch if whole else batch.take(pa.array(np.flatnonzero(here)))
        live = int(self.memory.state[LIVE + side])
        self.results.columns[side].add(kept, slots[here], records, links, live)

    def _count_anew(self) -> None:
        """Recompute the cost of every tuple in memory in the unit of the capacity."""
        tuples, weights = dump_tuples(self.memory)
        for side in range(2):
            own = tuples[:, SIDE_COLUMN] == side
            costs = self._costs(self._rows_of(side, tuples[own, ORIGIN_COLUMN], no_rows(self._schemas[side]).batch))
            tuples[own, COST_COLUMN] = 1 if costs is None else costs
        self._reload(self.memory.records.shape[0], tuples, weights)

    def _rows_of(self, side: int, origins: Int64s, arriving: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._schemas[side]
        columns = self.results.columns[side].gather(np.ascontiguousarray(origins), arriving, schema.names)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _room_for_departed(self, arriving: int) -> Int64s:
        if self._archive is None:
            return np.empty((0, DEPARTED_COLUMNS), np.int64)
        live = self.memory.state[LIVE] + self.memory.state[LIVE + 1]
        return np.empty((live + arriving, DEPARTED_COLUMNS), np.int64)

    def _archive_departed(self, departed: Int64s, arriving: tuple[pa.RecordBatch, pa.RecordBatch]) -> None:
        count, self.memory.state[DEPARTED] = int(self.memory.state[DEPARTED]), 0
        if self._archive is None:
            return
        for side in range(2):
            gone = departed[:count][departed[:count, 0] == side]
            _, origin, arrival, until, time = np.ascontiguousarray(gone.T)
            self._archive.add(side, self._rows_of(side, origin, arriving[side]), time, arrival, until)

    def _make_room(self, times: Int64s) -> None:
        """Ensure slots for all tuples that can be in memory while these arrive."""
        live = int(self.memory.state[LIVE] + self.memory.state[LIVE + 1])
        most = self._most_tuples
        at_once = largest_instant(times) if self._cpu is None else times.size
        need = min(live + times.size, max(most, live) + at_once)
        slots = self.memory.records.shape[0]
        if need > slots:
            self._enlarge(max(need, min(slots + slots // 4 if self.capacity.unit_is_bytes else 2 * slots, most)))

    def _enlarge(self, slots: int) -> None:
        self._reload(slots, *dump_tuples(self.memory))

    def _reload(self, slots: int, tuples: Int64s, weights: Floats) -> None:
        self.memory = enlarge(self.memory, slots, tuples, self.cells(tuples), weights)
        for store in self.results.columns:
            store.relocate(self.memory.records, self.memory.links)

    @property
    def _most_tuples(self) -> int:
        return self.capacity.most_tuples(self._least_tuple_bytes)

    @property
    def nbytes(self) -> int:
        """Bytes of the tuples in memory, including their rows and statistics."""
        return nbytes(self.memory) + sum(store.nbytes for store in self.results.columns)

    def note_windows(self) -> None:
        """Tell the archive the windows valid from the next instant on."""
        if self._archive is not None:
            self._archive.change_windows(int(self.memory.state[NOW]) + 1, self.windows)

    def cells(self, tuples: Int64s) -> Int64s:
        """Return the cells of dumped tuples; empty if cells are the codes."""
        cells = [self._condition.cells(side, np.ascontiguousarray(tuples[:, CODE_COLUMN])) for side in range(2)]
        return np.where(tuples[:, SIDE_COLUMN] == 0, cells[0], cells[1]) if cells[0].size else cells[0]

    def _write_limits(self) -> None:
        state = self.memory.state
        state[VARIABLE] = self.capacity.shared
        state[CAPACITY : CAPACITY + 2] = self.capacity.left, self.capacity.right
        for side, window in enumerate(self.windows):
            state[WINDOW + side], state[BY_TUPLES + side] = window.length, window.by_tuples

    def _tuples_meant(self, memory: Memory) -> int:
        """Estimate the number of tuples that ``memory`` holds; `_capacity` validates it."""
        if isinstance(memory, str):
            columns = len(self._schemas[0]) + len(self._schemas[1])
            beside_classes = max(parse_bytes(memory) - self._worth.values.size * CLASS_BYTES, 0)
            return beside_classes // (ROOMY_SLOT_BYTES + COPIES * 4 * columns)
        if isinstance(memory, Mapping):
            given: list[object] = [*memory.values()]
            return sum(tuples for tuples in given if isinstance(tuples, int))
        return memory if isinstance(memory, int) else _USUAL_TUPLES

    def _capacity(self, memory: Memory) -> Capacity:
        sketch_bytes = self._sketch_width * _COUNTER_BYTES
        return Capacity.of(
            memory,
            self._allocation,
            reserved_bytes=self._worth.values.size * CLASS_BYTES + sketch_bytes,
            least_tuple_bytes=self._least_tuple_bytes,
            sketch_tuples=-(-sketch_bytes // SLOT_BYTES),
        )
