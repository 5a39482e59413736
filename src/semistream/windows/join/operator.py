"""WindowJoin: two streams joined in a sliding window, in a memory that may be too small for it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument, JoinFailed, JoinInProgress
from semistream.kernels.array_types import Int64s
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
from semistream.windows.streams.match import JoinOn, WindowMatch
from semistream.windows.streams.result_weight import ResultWeight, Weight

Results = Iterator[pa.RecordBatch]

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Prob, Life, Expected, Random)}
"""The policies by name."""


class WindowJoin:
    """Joins two streams, pushed batch by batch in any interleaving, within sliding windows.

    **Which pairs.** A tuple arrives at its event time, and is in its stream's window from then on: for ``window``
    instants, its own included, so at instants t with ``t - window < time <= t`` (WINDOW 2.1); with `Tuples`, while it
    is among that many latest tuples of its stream, all those of the instant at hand included; with None for ever. A
    pair is a result if it fulfils the condition and, at the instant when the later of the two arrives, both are in
    their windows. For windows of time that is ``0 <= l.time - r.time < right window`` or ``0 <= r.time - l.time < left
    window``. It comes out once, and two tuples of one instant meet. (The formula in 2.1 sums from ``t - w - 1``,
    against its own text, and counts pairs of one instant twice.)

    **When.** Tuples wait until their instant is complete in both streams: until both have shown a later time (less
    ``lateness``), or `advance` has said so. Then all tuples of the instant arrive together, and instants follow each
    other in order. So results, evictions and statistics depend on the two streams only: not on how they are cut into
    batches, nor on which is pushed first. Tuples of one instant are in the order left before right, and as pushed.

    **Exact** when the memory suffices: the results are those of a batch join by key and time. Otherwise ``policy`` says
    who leaves: what comes out is a subset of the exact result, ``stats`` counts what left and estimates what is
    missing, and an ``archive`` keeps what it takes to produce the rest later (`semistream.windows.repair`).

    Each call gives an iterator of results, which must be consumed to its end before the operator is driven on.

    Parameters
    ----------
    left_schema, right_schema
        The columns of the streams R and S.
    on, band, where
        What must hold: columns that are equal (a name, several, or a mapping from left to right), a `Band`, an Arrow
        expression over the joined row, or several of these. Null keys match nothing.
    time
        The column with event times (integers, dates or timestamps), or one for each stream. None: the instant of a
        tuple is its position in its own stream, as in the paper, where one tuple of each arrives at every instant.
    window
        How long tuples live: instants (integer times), a timedelta or text such as ``"5 minutes"``, `Tuples`, or None;
        one for both streams or ``{"left": ..., "right": ...}``. That of the left says how long left tuples live.
    memory
        The most tuples that are kept between instants (the paper's M), ``{"left": ..., "right": ...}`` for unequal
        parts, a size in bytes as text such as ``"64MB"``, or None for no limit. Tuples that wait for their instant are
        not in it.
    policy
        `Prob`, `Life`, `Expected`, `Random`, or their names.
    allocation
        ``"fixed"``: half of the memory for each stream; ``"variable"``: it is shared as worth decides (WINDOW 5.2.3).
    lateness
        How far, in instants or as a duration, tuples may be behind the latest one of their stream. Later ones are
        counted and handed out by `take_late`. None: only `advance` says what is late.
    weight, weight_column
        What a result is worth (`ResultWeight`), and the name of a column for it, if it is to come out.
    archive
        Takes every tuple when it leaves.
    cpu
        A `SlowCpu` serves so many tuples at an instant, and has a queue that drops the others. None: all are joined.
    suffix
        For names of right columns that the left stream has too.
    max_waiting
        Tuples that may wait for the other stream before a push is refused: one that is silent would else hold all.
    batch_rows
        The most rows of a batch of results.

    Examples
    --------
    >>> stream = pa.schema([("k", pa.int64())])
    >>> join = WindowJoin(stream, stream, on="k", window=3, memory=2)
    Traceback (most recent call last):
    semistream.errors.BudgetError: memory is 2; give at least 2 tuples and 7 more for the sketch of frequencies...
    >>> join = WindowJoin(stream, stream, on="k", window=3)
    >>> r, s = ([pa.record_batch({"k": keys})] for keys in ([1, 1, 1, 3, 2], [2, 3, 1, 1, 3]))  # WINDOW Fig. 3
    >>> [sum(b.num_rows for b in join.push(side, b)) for side, (b,) in (("left", r), ("right", s))]
    [0, 7]
    >>> list(join.finish()), join.stats.results
    ([], 7)
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
        self.schemas = (left_schema, right_schema)
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
        self.schema = results.schema
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
        """Take a batch of one stream; gives the results of all instants that are complete by now."""
        number = side_number(side)
        self._check(number, batch)
        times = None if self._time.names is None else self._time.instants(number, batch)
        waiting = sum(arrivals.waiting for arrivals in self._arrivals)
        if waiting + batch.num_rows > self._max_waiting and self._arrivals[1 - number].watermark <= self.frontier:
            raise InvalidArgument(
                f"{waiting} tuples wait, and with the {batch.num_rows} of this batch they would be more than "
                f"max_waiting, {self._max_waiting}: the {SIDES[1 - number]} stream is silent, or far behind. The batch "
                f"was not taken: push that stream, tell by advance(time, side={SIDES[1 - number]!r}) how far it is, or "
                "raise max_waiting."
            )
        return self._drive("push", self._pushed(number, batch, times))

    def push_left(self, batch: pa.RecordBatch) -> Results:
        """Take a batch of the left stream."""
        return self.push("left", batch)

    def push_right(self, batch: pa.RecordBatch) -> Results:
        """Take a batch of the right stream."""
        return self.push("right", batch)

    def advance(self, time: Instant, side: Side | None = None) -> Results:
        """Say that no tuple with an earlier time will come in a stream, or in both: a watermark from outside.

        This is how a stream that is silent lets the other one go on. Earlier tuples that come nevertheless are late.
        Without time columns the stream leaves out the instants up to then: its next tuple arrives at ``time``.
        """
        self._require_idle("advance")
        instant = self._time.instant(time)
        for number in (0, 1) if side is None else (side_number(side),):
            self._arrivals[number].advance(instant)
        return self._drive("advance", self._engine.arrive(self._arrivals, self.frontier))

    def expire(self) -> None:
        """Let go of the tuples that have expired by the `frontier`, which else leave when the next one arrives.

        No result and no eviction changes: whoever arrives next would push them out first. It is for streams that pause,
        and whose tuples are to be in the archive, or out of the memory, nevertheless. (With a `SlowCpu` they wait.)
        """
        self._require_idle("expire")
        self._engine.expire(self.frontier)

    def finish(self) -> Results:
        """The streams have ended: gives the results that are left. Nothing can be pushed after that."""
        self._require_idle("finish")
        self._finished = True
        for arrivals in self._arrivals:
            arrivals.advance(LAST_INSTANT + 1)
        return self._drive("finish", self._ended())

    def set_window(self, window: Windows) -> None:
        """Change the windows, with effect from the next instant on (WINDOW 6.1.1: varying window size).

        What has expired does not come back if a window grows: who is kept for the instant behind t is decided at t, by
        the windows of t, and whom they cannot use then has left. So with a window of time that grows from w at t + 1,
        those of t - w + 1 are missed, though 2.1 has them in the window at t and at t + 1: the paper is silent about
        growing, and keeping them in case would cost every join two more tuples than the 2 w - 2 that are exact. To have
        them too, let the window grow an instant earlier, before t is complete: results at t are the same, as what the
        old window had let go is gone. `repair` and the archive go by the same rule.
        """
        self._require_idle("set_window")
        self._engine.set_windows(self._windows(window))

    def set_memory(self, memory: Memory) -> None:
        """Change the memory. If it shrinks, the least worthy tuples leave at once (WINDOW 6.1.1: varying memory), after
        those that no later instant can use in the windows as they are now."""
        self._require_idle("set_memory")
        self._engine.set_memory(memory)

    @property
    def frontier(self) -> int:
        """The instant before which everything has been joined, as far as times are complete."""
        return min(arrivals.watermark for arrivals in self._arrivals)

    def take_late(self, side: Side) -> list[pa.RecordBatch]:
        """Hand out the tuples of a stream that came too late since this was last called; they are kept until then."""
        late = self._late[side_number(side)]
        taken, late[:] = list(late), []
        return taken

    @property
    def stats(self) -> WindowStats:
        """What became of every tuple, up to now."""
        stats = self._engine.stats()
        for number, side in enumerate(SIDES):
            counts: StreamCounts = getattr(stats, side)
            counts.late, counts.waiting = self._late_rows[number], self._arrivals[number].waiting
            counts.rows_in = self._arrivals[number].rows + counts.late
        return stats

    @property
    def nbytes(self) -> int:
        """Bytes held for tuples in memory: their rows, and all that is known about them. Tuples that wait are not."""
        return self._engine.nbytes

    def state(self) -> Tables:
        """All that the operator knows, as Arrow tables: `restore` goes on from there as if nothing had happened."""
        self._require_idle("state")
        return pack_state(self._engine, self._arrivals, self._late, self._late_rows)

    def restore(self, tables: Tables) -> None:
        """Take over the state of an operator that was made with the same parameters; windows and memory that were
        changed since come with it. This one must be new."""
        self._require_idle("restore")
        if any(arrivals.rows for arrivals in self._arrivals):
            raise InvalidArgument("this operator has taken tuples already; restore a new one, of equal parameters.")
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

    def _check(self, side: int, batch: pa.RecordBatch) -> None:
        declared = self.schemas[side]
        if batch.schema.names != declared.names or batch.schema.types != declared.types:
            raise InvalidArgument(
                f"a batch of the {SIDES[side]} stream has the columns ({_describe(batch.schema)}), but the stream was "
                f"declared with ({_describe(declared)}). Select and cast it first."
            )
        if self._finished:
            raise InvalidArgument("finish() has ended the streams; make a new operator for more.")

    def _require_idle(self, call: str) -> None:
        if self._failure is not None:
            raise JoinFailed(
                f"{self._busy}() ended in an error ({type(self._failure).__name__}: {self._failure}); {call}() cannot "
                "start. Restore the last state into a new operator."
            ) from self._failure
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed to their end; {call}() cannot start. "
                f"Write `for batch in join.{self._busy}(...)`, or list(...)."
            )

    def _drive(self, call: str, results: Results) -> Results:
        self._require_idle(call)
        self._busy = call
        return self._driven(results)

    def _driven(self, results: Results) -> Results:
        try:
            yield from results
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


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
