"""WindowJoin: joins two streams in a sliding window, in memory that may be too small for it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument, JoinFailed, JoinInProgress
from semistream.kernels.array_types import Int64s
from semistream.keys.plain_types import (
    BatchConverter,
    batch_in,
    given_back_schema,
    plain_schema,
    require_same_values,
)
from semistream.windows.join.archive import Archive
from semistream.windows.join.capacity import Allocation, Memory
from semistream.windows.join.instants import InstantJoin
from semistream.windows.join.results import ResultRows
from semistream.windows.join.slow_cpu import SlowCpu
from semistream.windows.join.state import Tables, pack_state, unpack_state
from semistream.windows.join.window_stats import StreamCounts, WindowStats
from semistream.windows.policies import Expected, Life, Policy, Prob, Random
from semistream.windows.streams.arrivals import Arrivals
from semistream.windows.streams.band import Band
from semistream.windows.streams.event_time import (
    LAST_INSTANT,
    SIDES,
    EventTime,
    Instant,
    Length,
    Side,
    TimeColumns,
    side_number,
)
from semistream.windows.streams.lengths import WindowLength, Windows
from semistream.windows.streams.result_weight import ResultWeight, Weight
from semistream.windows.streams.window_match import JoinOn, WindowMatch

Results = Iterator[pa.RecordBatch]

_PIECE_BYTES = 4 << 20  # of results converted at a time

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Prob, Life, Expected, Random)}
"""Eviction policies by name: the names that ``policy`` of `WindowJoin` takes."""


class WindowJoin:
    """Join of two streams within sliding windows, in limited memory.

    Push the batches of both streams in any interleaving. `push`, `advance` and `finish` return iterators of results.
    Consume each to its end before the next call.

    **Pairs.** A tuple arrives at its event time and enters its stream's window. In a window of time it stays for
    ``window`` instants, its own included: at instants t with ``t - window < time <= t`` (WINDOW 2.1). With `Tuples`
    it stays while it is among that many latest tuples of its stream, counting all tuples of the current instant. With
    None it stays for ever. A pair is a result if it fulfils the condition and both tuples are in their windows at the
    instant when the later one arrives. For windows of time this means ``0 <= l.time - r.time < right window`` or
    ``0 <= r.time - l.time < left window``. Each pair comes out once, and two tuples of one instant meet. (The formula
    in 2.1 sums from ``t - w - 1``, which contradicts its own text, and counts pairs of one instant twice.)

    **Order.** Tuples wait until their instant is complete in both streams: until both have shown a later time (less
    ``lateness``), or `advance` has declared it complete. Then all tuples of the instant arrive together, and instants
    follow each other in order. Results, evictions and statistics therefore depend only on the two streams, not on how
    they are cut into batches or which one is pushed first. Within an instant, left tuples come before right ones,
    each in the order pushed.

    **Exactness.** If the memory suffices, the results are those of a batch join by key and time. Otherwise ``policy``
    selects the tuples that leave, and the output is a subset of the exact result. ``stats`` counts the tuples that
    left and estimates the missing results. An ``archive`` keeps the data to produce these later
    (`semistream.windows.repair`).

    Parameters
    ----------
    left_schema, right_schema : pyarrow.Schema
        Schemas of the streams R and S, of any Arrow types.
    on : str, sequence of str or mapping, optional
        Equal columns: a name, several, or a mapping from left to right. Null keys match nothing.
    band : Band, optional
        Columns that differ by at most epsilon.
    where : pyarrow.compute.Expression, optional
        Condition on the joined row. A result fulfils all of ``on``, ``band`` and ``where`` that are given.
    time : str or mapping, optional
        The column with event times (integers, dates or timestamps), or one for each stream. None: a tuple's instant
        is its position in its own stream, as in the paper, where one tuple of each stream arrives at every instant.
    window : int, timedelta, str, Tuples, None or mapping
        Lifetime of tuples: instants (integer times), a timedelta or text such as ``"5 minutes"``, `Tuples`, or None;
        one for both streams or ``{"left": ..., "right": ...}``. The left window is the lifetime of left tuples.
    memory : int, str or mapping, optional
        The most tuples kept between instants (the paper's M), ``{"left": ..., "right": ...}`` for unequal parts, a
        size in bytes as text such as ``"64MB"``, or None for no limit. Tuples that wait for their instant do not
        count.
    policy : str or Policy
        `Prob` (the default), `Life`, `Expected`, `Random`, or their names.
    allocation : {"fixed", "variable"}
        ``"fixed"``: half of the memory for each stream. ``"variable"``: shared according to worth (WINDOW 5.2.3).
    lateness : int, timedelta or str, optional
        Allowed delay of a tuple behind the latest one of its stream, in instants or as a duration; 0 by default. Later
        tuples are counted, and returned by `take_late`. None: only `advance` makes tuples late.
    weight : pyarrow.compute.Expression or callable, optional
        The weight of a result (`ResultWeight`), from the joined row; 1 by default.
    weight_column : str, optional
        Name of an output column for the weight, if wanted.
    archive : Archive, optional
        Receives every tuple when it leaves.
    cpu : SlowCpu, optional
        Joins a limited number of tuples per instant and drops the excess from its queue. None: no limit.
    suffix : str
        Appended to the names of right columns that the left stream has too.
    max_waiting : int
        The most tuples that may wait for the other stream. Beyond it a push is refused, since a silent stream would
        otherwise make the join hold everything.
    batch_rows : int
        Most rows in a batch of results.

    Examples
    --------
    >>> stream = pa.schema([("k", pa.int64())])
    >>> r, s = pa.record_batch({"k": [1, 1, 1, 3, 2]}), pa.record_batch({"k": [2, 3, 1, 1, 3]})  # WINDOW Fig. 3
    >>> join = WindowJoin(stream, stream, on="k", window=3)
    >>> [*join.push_left(r)], sum(b.num_rows for b in [*join.push_right(s), *join.finish()])
    ([], 7)
    >>> WindowJoin(stream, stream, on="k", window=3, memory=2)
    Traceback (most recent call last):
    semistream.errors.BudgetError: memory is 2; give at least 2 tuples and 7 more for the sketch of frequencies...

    References
    ----------
    WINDOW 2.1 (windows), 2.3 (the fast CPU model), 4.2 (policies), 6.2 (other windows and conditions). docs/windows.md.
    """

    def __init__(
        self,
        left_schema: pa.Schema,
        right_schema: pa.Schema,
        *,
        on: JoinOn | None = None,
        band: Band | None = None,
        where: pc.Expression | None = None,
        time: TimeColumns = None,
        window: Windows,
        memory: Memory = None,
        policy: str | Policy = "prob",
        allocation: Allocation = "fixed",
        lateness: Length | None = 0,
        weight: Weight | None = None,
        weight_column: str | None = None,
        archive: Archive | None = None,
        cpu: SlowCpu | None = None,
        suffix: str = "_right",
        max_waiting: int = 10_000_000,
        batch_rows: int = 65_536,
    ) -> None:
        self._given_schemas = (given_back_schema(left_schema), given_back_schema(right_schema))
        self.schemas = left_schema, right_schema = plain_schema(left_schema), plain_schema(right_schema)
        self._condition = WindowMatch.of(left_schema, right_schema, on=on, band=band, where=where, suffix=suffix)
        self._time = EventTime.of(left_schema, right_schema, time)
        self._policy = _policy(policy)
        self._cpu = cpu
        windows = self._windows(window)
        behind = 0 if lateness == 0 else None if lateness is None else self._time.length(lateness, "lateness", least=0)
        numbered = self._time.names is None
        self._arrivals = (
            Arrivals(left_schema, lateness=behind, numbered=numbered),
            Arrivals(right_schema, lateness=behind, numbered=numbered),
        )
        value = None if weight is None else ResultWeight.of(weight, self._condition, left_schema, right_schema)
        results = ResultRows(self.schemas, self._condition, value, weight_column)
        self.schema = self._condition.given_out(*self._given_schemas, results.schema)
        self._leaving = BatchConverter(self.schema, _PIECE_BYTES)
        self._engine = InstantJoin(
            self.schemas,
            self._condition,
            windows,
            self._policy,
            results,
            memory=memory,
            allocation=allocation,
            archive=archive,
            cpu=cpu,
            batch_rows=whole_number("batch_rows", batch_rows, least=1),
        )
        self._max_waiting = whole_number("max_waiting", max_waiting, least=1)
        self._late: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        self._late_rows = [0, 0]
        self._finished = False
        self._busy: str | None = None
        self._failure: Exception | None = None

    def push(self, side: Side, batch: pa.RecordBatch) -> Results:
        """Add a batch of one stream; return the results of all instants complete by now."""
        number = side_number(side)
        batch = self._plain(number, batch)
        times = None if self._time.names is None else self._time.instants(number, batch)
        waiting = sum(arrivals.waiting for arrivals in self._arrivals)
        if waiting + batch.num_rows > self._max_waiting and self._arrivals[1 - number].watermark <= self.frontier:
            raise InvalidArgument(
                f"{waiting} tuples wait, and the {batch.num_rows} of this batch would exceed max_waiting, "
                f"{self._max_waiting}: the {SIDES[1 - number]} stream is silent, or far behind. The batch "
                f"was not taken: push that stream, declare its progress by advance(time, side={SIDES[1 - number]!r}), "
                "or raise max_waiting."
            )
        return self._drive("push", self._pushed(number, batch, times))

    def push_left(self, batch: pa.RecordBatch) -> Results:
        """Add a batch of the left stream."""
        return self.push("left", batch)

    def push_right(self, batch: pa.RecordBatch) -> Results:
        """Add a batch of the right stream."""
        return self.push("right", batch)

    def advance(self, time: Instant, side: Side | None = None) -> Results:
        """Declare that a stream, or both, will bring no tuple before ``time``: an external watermark.

        This lets the join go on while a stream is silent. Earlier tuples that come all the same are late. Without
        time columns the stream skips the instants before ``time``, and its next tuple arrives at ``time``.
        """
        self._require_idle("advance")
        instant = self._time.instant(time)
        for number in (0, 1) if side is None else (side_number(side),):
            self._arrivals[number].advance(instant)
        return self._drive("advance", self._engine.arrive(self._arrivals, self.frontier))

    def expire(self) -> None:
        """Remove the tuples that have expired by the `frontier`; otherwise they leave when the next tuple arrives.

        This changes no result and no eviction, because the next arrival would push them out first. Use it when
        streams pause but expired tuples should move to the archive or free their memory. With a `SlowCpu` it does
        nothing.
        """
        self._require_idle("expire")
        self._engine.expire(self.frontier)

    def finish(self) -> Results:
        """End the streams and return the remaining results. Nothing can be pushed afterwards."""
        self._require_idle("finish")
        self._finished = True
        for arrivals in self._arrivals:
            arrivals.advance(LAST_INSTANT + 1)
        return self._drive("finish", self._ended())

    def set_window(self, window: Windows) -> None:
        """Change the windows from the next instant on (WINDOW 6.1.1: varying window size).

        Expired tuples do not come back if a window grows. The tuples kept for the instant after t are chosen at t, by
        the windows valid at t; the others have left. If a window of time grows from w at t + 1, the tuples of
        t - w + 1 are therefore missed, although 2.1 has them in the window at t and at t + 1. The paper does not
        discuss growing windows, and keeping these tuples just in case would cost every join two tuples more than the
        2 w - 2 sufficient to be exact. To include them, let the window grow one instant earlier, before t is
        complete. The results at t stay the same, because the tuples outside the old window are already gone. `repair`
        and the archive follow the same rule.
        """
        self._require_idle("set_window")
        self._engine.set_windows(self._windows(window))

    def set_memory(self, memory: Memory) -> None:
        """Change the memory (WINDOW 6.1.1: varying memory).

        If it shrinks, tuples leave at once: first those that no later instant can use in the current windows, then
        the least worthy ones.
        """
        self._require_idle("set_memory")
        self._engine.set_memory(memory)

    @property
    def frontier(self) -> int:
        """First instant that is incomplete in a stream; everything before it has been joined."""
        return min(arrivals.watermark for arrivals in self._arrivals)

    def take_late(self, side: Side) -> list[pa.RecordBatch]:
        """Return and clear the tuples of a stream that came too late since the last call."""
        number = side_number(side)
        late = self._late[number]
        taken, late[:] = list(late), []
        return [batch_in(batch, self._given_schemas[number]) for batch in taken]

    @property
    def stats(self) -> WindowStats:
        """Counts of all tuples and results so far."""
        stats = self._engine.stats()
        for number, side in enumerate(SIDES):
            counts: StreamCounts = getattr(stats, side)
            counts.late, counts.waiting = self._late_rows[number], self._arrivals[number].waiting
            counts.rows_in = self._arrivals[number].rows + counts.late
        return stats

    @property
    def nbytes(self) -> int:
        """Bytes held for tuples in memory, including their rows and statistics, but not for waiting tuples."""
        return self._engine.nbytes

    def state(self) -> Tables:
        """Return the complete state as Arrow tables; an operator that restores it continues as if never interrupted."""
        self._require_idle("state")
        return pack_state(self._engine, self._arrivals, self._late, self._late_rows)

    def restore(self, tables: Tables) -> None:
        """Load the state of an operator with the same parameters into this one, which must be new.

        Windows and memory changed since construction are part of the state.
        """
        self._require_idle("restore")
        if any(arrivals.rows for arrivals in self._arrivals):
            raise InvalidArgument("this operator has taken tuples already; restore a new one with the same parameters.")
        unpack_state(tables, self._engine, self._arrivals, self._late, self._late_rows)

    def _windows(self, window: Windows) -> tuple[WindowLength, WindowLength]:
        windows = WindowLength.pair(window, self._time)
        self._policy.accept(windows)
        if self._cpu is not None:
            self._cpu.accept(self._policy, windows)
        return windows

    def _pushed(self, side: int, batch: pa.RecordBatch, times: Int64s | None) -> Results:
        late = self._arrivals[side].take(batch, times)
        if late.num_rows:
            self._late[side].append(late)
            self._late_rows[side] += late.num_rows
        yield from self._engine.arrive(self._arrivals, self.frontier)

    def _ended(self) -> Results:
        yield from self._engine.arrive(self._arrivals, self.frontier)
        self._engine.archive_rest()

    def _plain(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of one stream in plain types, if it can be taken."""
        require_same_values(batch, self.schemas[side], f"a batch of the {SIDES[side]} stream", convertible=True)
        if self._finished:
            raise InvalidArgument("finish() has ended the streams; make a new operator for more.")
        return batch_in(batch, self.schemas[side])

    def _require_idle(self, call: str) -> None:
        if self._failure is not None:
            raise JoinFailed(
                f"{self._busy}() ended in an error ({type(self._failure).__name__}: {self._failure}); {call}() cannot "
                "start. Restore the last state into a new operator."
            ) from self._failure
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed completely, so {call}() cannot start. "
                f"Write `for batch in join.{self._busy}(...)`, or list(...)."
            )

    def _drive(self, call: str, results: Results) -> Results:
        self._require_idle(call)
        self._busy = call
        return self._driven(results)

    def _driven(self, results: Results) -> Results:
        try:
            for batch in results:
                yield from self._leaving.pieces(batch)
        except Exception as error:
            self._failure = error
            raise
        self._busy = None


def _policy(policy: str | Policy) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        raise InvalidArgument(f"policy is {policy!r}; give one of {', '.join(map(repr, POLICIES))}, or a Policy.")
    return POLICIES[policy]()
