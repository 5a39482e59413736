"""The contract of a semi-stream join: driven by push, step and flush, exact, inside one byte budget."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack, cast

import pyarrow as pa

from semistream.budget import MemoryBudget, parse_bytes
from semistream.costs.work import OperatorModel
from semistream.errors import BudgetError, InvalidArgument, JoinFailed, JoinInProgress
from semistream.joins.condition.spec import JoinSpec, JoinTerms
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.parts.deadlines import DEADLINE_COLUMN, Clock, DeadlineRule, Deadlines, DrainCost, Lateness
from semistream.joins.parts.emitter import Emitter, PairWatcher, StreamRows
from semistream.joins.parts.options import Check, anything, require_options
from semistream.joins.parts.ordered_output import NUMBER_COLUMN, OrderedOutput
from semistream.joins.parts.stats import JoinStats
from semistream.joins.resources import Arrangement, SetAside
from semistream.kernels.array_types import Bools, Int64s
from semistream.relation import AnyRelation, Disk, DiskCosts, DiskCounts, ParquetRelation, Relation


class JoinArguments(JoinTerms, total=False):
    """Arguments that every operator takes besides the relation and the stream; see `SemiStreamJoin`."""

    memory: int | str | MemoryBudget
    disk: str | Disk
    ordered: bool
    deadline_s: float | str | None
    clock: Clock


class SemiStreamJoin(Arrangement):
    """Joins a stream, pushed batch by batch, with a relation on disk.

    `push` takes a batch of any size and makes room by stepping, `step` does one iteration of the operator's loop, and
    `flush` steps until no tuple waits. Each gives an iterator of results in bounded batches: work is done as it is
    consumed, and it must be consumed to its end before the operator is driven on. The results of all calls together
    are, as a multiset, exactly the batch join of all rows pushed, whatever the batches were.

    Parameters: ``relation`` R; ``stream`` the columns of S, or a `JoinSpec` that was resolved before, and then no other
    term of the join; ``on`` a column, several, or a mapping from the stream's to the relation's, which must be equal;
    ``where`` further conditions: comparisons as text (``"s.at BETWEEN r.since AND r.until"``, ``"abs(s.x - r.k) <=
    5"``), Arrow expressions over the joined row, or a sequence of both; ``how`` inner, left, semi or anti; ``memory``
    the operator's whole budget, in bytes or as a share of R; ``columns`` of R in the result (by default all that ``on``
    does not name); ``suffix`` for names that S has too; ``disk`` how R is read; ``ordered`` True for results in the
    order of the stream (`OrderedOutput` says what that costs); ``deadline_s`` how long a tuple may wait, or the column
    that says so (`DeadlineRule`), on ``clock``. Nulls match nothing.

    A subclass sets its own attributes, then calls ``super().__init__``, which arranges it. ``options`` names the
    arguments it has besides these. An operator that ``needs_index`` finds rows by R's key and refuses conditions that
    do not pin it down; one that ``needs_equality`` refuses ranges too. Only one that ``takes_unclustered`` scans plain
    Parquet, where equality with any columns will do.
    """

    name: ClassVar[str]
    needs_index: ClassVar[bool] = False
    needs_equality: ClassVar[bool] = False
    takes_unclustered: bool = False
    options: ClassVar[Mapping[str, Check]] = {}
    _emitter: Emitter

    def __init__(
        self,
        relation: AnyRelation,
        stream: pa.Schema | JoinSpec,
        *,
        memory: int | str | MemoryBudget = "10%",
        disk: str | Disk = "auto",
        ordered: bool = False,
        deadline_s: float | str | None = None,
        clock: Clock = time.monotonic,
        **terms: Unpack[JoinTerms],
    ) -> None:
        spec = _resolved(relation, stream, terms)
        stream_schema = self.stream_schema = spec.stream_schema
        rule = DeadlineRule.of(deadline_s, stream_schema, clock)
        self._deadlines = None if rule is None else Deadlines(rule, clock)
        carried = _carried_schema(stream_schema, ordered=ordered, deadlines=rule is not None)
        self._deadline_column = len(carried) - 1
        self.spec = spec.with_stream(relation, carried)
        self._open(self._accept(relation))
        self._require_condition(relation, self.spec)
        own = range(len(stream_schema), len(carried))
        self._given_out = [i for i in range(len(self.spec.schema)) if i not in own]
        self.schema = pa.schema([self.spec.schema.field(i) for i in self._given_out])
        self.budget = memory if isinstance(memory, MemoryBudget) else MemoryBudget(memory, of=relation.nbytes)
        self._set_aside = SetAside(ordered=ordered, deadlines=rule is not None)
        self._clock = clock
        self.stats = JoinStats(budget_bytes=self.budget.limit)
        self._disk = relation.disk(disk)
        self._drain_cost = DrainCost(self._read_costs, self.relation.nbytes / max(self.relation.num_pages, 1))
        self._next_relation: Relation | None = None
        self._busy: str | None = None
        self._failure: Exception | None = None
        self._order: OrderedOutput | None = None
        self._pushed_s = 0.0
        self._counted: tuple[int, ...] = ()
        self._lateness = Lateness()
        self._watcher: PairWatcher | None = None
        self._joined_watcher: PairWatcher | None = None
        self._put_together()

    def push(self, batch: pa.RecordBatch) -> Results:
        """Take a batch; results come out when room has to be made for it."""
        declared = self.stream_schema
        if batch.schema.names != declared.names or batch.schema.types != declared.types:
            raise InvalidArgument(
                f"a batch has the columns ({_describe(batch.schema)}), but the stream was declared with "
                f"({_describe(declared)}). Select and cast it first."
            )
        return self._drive("push", self._pushed(batch, self._next_relation))

    def step(self) -> Results:
        """One iteration of the operator's loop; does nothing while no tuple waits."""
        return self._drive("step", self._stepped())

    def flush(self) -> Results:
        """Step until no tuple waits."""
        return self._drive("flush", self.drain())

    def poll(self) -> Results:
        """Start what has to start now so that no deadline is missed; does nothing while there is time."""
        return self._drive("poll", self._hurry())

    def refresh(self, relation: AnyRelation) -> None:
        """Go over to another version of R: tuples pushed from now on are joined with it (SSIJ IV-E).

        Those that wait are joined to their end with the version they were pushed under, by the calls that follow.
        Every tuple sees one version as a whole, and ``stats.versions`` says how many saw which.
        """
        if (relation.key, relation.schema) != (self.relation.key, self.relation.schema):
            raise InvalidArgument(
                f"version {relation.version} of {relation.path} has the columns ({_describe(relation.schema)}) and the "
                f"key ({', '.join(relation.key)}), unlike the one that is joined. Make a new operator."
            )
        self._next_relation = self._accept(relation)

    def set_memory(self, memory: int | str) -> Results:
        """Change the budget. Tuples that wait are joined first; afterwards the new limit holds.

        Too little memory is refused, and the old budget stays.
        """
        return self._drive("set_memory", self._with_memory(parse_bytes(memory, of=self._whole_bytes)))

    def watch_pairs(self, watcher: PairWatcher | None) -> None:
        """Tell ``watcher`` of all pairs that are found, as they are: what a front stage learns from."""
        self._watcher = watcher
        self._attach_watcher()

    def watch_joined(self, watcher: PairWatcher | None) -> None:
        """Tell ``watcher`` of all pairs that come out as results: which rows of R the stream has met.

        Of an operator with a cache it is told nothing.
        """
        self._joined_watcher = watcher
        self._attach_watcher()

    def _attach_watcher(self) -> None:
        self._emitter.watcher = self._watcher
        self._emitter.joined_watcher = self._joined_watcher

    @property
    def due_s(self) -> float:
        """When, on the clock, `poll` will have something to do: the first deadline less the time the work takes."""
        if self._deadlines is None:
            return math.inf
        return self._deadlines.earliest_s - self._drain_cost.expected_s(self.pages_to_drain() + self.pages_asked())

    def close(self) -> None:
        """End the background reader and close files. Tuples that still wait are dropped."""
        self._disk.close()

    @property
    def disk_counts(self) -> DiskCounts:
        return self._disk.counts

    @property
    def _read_costs(self) -> DiskCosts:
        """What plans take it to cost to read R's pages, which may lie in several places each."""
        return self._disk.costs.in_segments(self.relation.segments)

    def share_deadlines(self, deadlines: Deadlines | None, column: int) -> None:
        """Report tuples that are done to the deadlines of the stage in front; ``column`` holds each tuple's."""
        self._deadlines, self._deadline_column = deadlines, column

    @classmethod
    def _require_condition(cls, relation: AnyRelation, spec: JoinSpec) -> None:
        if cls.needs_equality:
            spec.condition.require_equality(cls.name, relation)
        if cls.needs_index:
            spec.condition.require_index(cls.name, relation)

    @classmethod
    def check(cls, relation: Relation, spec: JoinSpec, memory_bytes: int, options: Mapping[str, Any]) -> None:
        """Refuse what the operator would refuse when it is made, without making it.

        That is options, conditions and memories it cannot do with; ``options`` has all arguments but the join's terms.
        """
        cls.require_options(options)
        relation.disk(options.get("disk", "auto")).close()
        ordered, deadline_s = options.get("ordered", False), options.get("deadline_s")
        rule = DeadlineRule.of(deadline_s, spec.stream_schema, options.get("clock", time.monotonic))
        carried = _carried_schema(spec.stream_schema, ordered=ordered, deadlines=rule is not None)
        cls._require_condition(relation, spec)
        resolved, read = spec.with_stream(relation, carried), relation.reading(spec.relation_columns)
        shares = SetAside(ordered=ordered, deadlines=rule is not None)
        try:
            cls._require_memory(
                JoinFacts(read, resolved.laid_out(read.layout)), max(shares.operator_bytes(memory_bytes), 1)
            )
        except BudgetError as error:
            raise shares.of_whole(error, memory_bytes) from None

    @classmethod
    def _require_memory(cls, facts: JoinFacts, nbytes: int) -> None:
        """Refuse a memory that is too small."""
        cls.model(facts, MemoryBudget(nbytes))

    @classmethod
    def require_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that the operator does not have, naming those it has, and bad values of its own."""
        common = dict.fromkeys(JoinArguments.__annotations__, anything)
        require_options(cls.name, {**cls.options, **common}, options)

    @classmethod
    @abstractmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> OperatorModel:
        """Predict such an operator in a memory, from numbers alone: see `semistream.tuning`.

        ``memory`` is charged as the operator would charge it; one that is too small is refused.
        """

    def _done(self, stream: StreamRows, positions: Int64s, matched: Bools) -> None:
        """Tuples are through; ``matched`` says which met a partner."""
        self.stats.count_done(matched)
        if self._deadlines is not None:
            self._deadlines.leave(stream.take(positions, [self._deadline_column])[0].to_numpy())

    def _pushed(self, batch: pa.RecordBatch, relation: Relation | None) -> Results:
        """Take a batch; ``relation`` is what it is to be joined with if that is not the version at hand."""
        self._pushed_s = self._clock()
        if relation is not None:
            yield from self.drain()
            self._go_over(relation)
        before = self.stats.rows_in
        yield from self._push_stamped(batch) if self._order is None else self._order.push(batch)
        versions = self.stats.versions
        versions[self.relation.version] = versions.get(self.relation.version, 0) + self.stats.rows_in - before
        yield from self._hurry()

    def _push_stamped(self, batch: pa.RecordBatch) -> Results:
        """Take tuples with their deadlines, if they have any: some at a time, to do so within the memory for it."""
        if self._deadlines is None:
            yield from self.feed(batch)
            return
        rows = Deadlines.rows_at_once(self.budget.limit)
        for begin in range(0, batch.num_rows, rows):
            yield from self.feed(self._deadlines.stamp(batch.slice(begin, rows), self._pushed_s))

    def _stepped(self) -> Results:
        yield from self.turn()
        if self._next_relation is not None and not self.stats.rows_waiting:
            self._go_over(self._next_relation)

    def _hurry(self) -> Results:
        if self._deadlines is None or not self.stats.rows_waiting or self._deadlines.clock() < self.due_s:
            return
        pages, began_s = self.pages_to_drain(), self._deadlines.clock()
        yield from self.drain()
        self._drain_cost.measured(pages, self._deadlines.clock() - began_s)

    def _with_memory(self, limit: int) -> Results:
        yield from self.drain()
        self._change(self.relation, limit)

    def _go_over(self, relation: Relation) -> None:
        if self._next_relation is relation:
            self._next_relation = None
        if relation is not self.relation:
            self._change(relation, self.budget.limit)

    def _change(self, relation: Relation, limit: int) -> None:
        """Arrange anew between two batches. If that cannot be, it is arranged as before, and can be driven on."""
        before = self.relation, self.budget.limit
        try:
            self.rearrange(relation, limit)
        except Exception:
            self._take_apart(*before)
            self._put_together()
            self._busy = None
            raise

    def _accept(self, relation: AnyRelation) -> Relation:
        """The relation for what this join needs of it; an operator refuses one that it has no use for."""
        if isinstance(relation, ParquetRelation) and not self.takes_unclustered:
            codec = self.spec.condition.codec
            raise relation.refuse(self.name, codec.names if codec else ())
        self._whole_bytes = relation.nbytes  # what shares of memory are of, however little of it is read
        # What only a Relation has is used by operators that take nothing else.
        return cast(Relation, relation.reading(self.spec.relation_columns))

    def _push_through(self, batch: pa.RecordBatch) -> Results:
        """Join some tuples to their end."""
        self._counted = self.row_counts()
        if self._deadlines is not None:
            self._lateness = self._deadlines.lateness
        yield from self._push_stamped(batch)
        yield from self.drain()

    def _forget(self) -> None:
        """The tuples that were pushed through last are to be joined again: what was counted of them is not true."""
        self.recount(self._counted)
        if self._deadlines is not None:
            self._deadlines.lateness = self._lateness

    def _drive(self, call: str, results: Results) -> Results:
        if self._failure is not None:
            raise JoinFailed(
                f"{self._busy}() ended in an error ({type(self._failure).__name__}: {self._failure}), and tuples that "
                f"waited are lost; {call}() cannot start. Make a new operator, and push again what it had not answered."
            ) from self._failure
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed to their end; {call}() cannot start. "
                f"Write `for batch in operator.{self._busy}(...)`, or list(...)."
            )
        self._busy = call
        return self._driven(results)

    def _driven(self, results: Results) -> Results:
        try:
            for batch in results:
                self.stats.outputs += batch.num_rows
                self.stats.batches += 1
                yield batch if len(self._given_out) == batch.num_columns else batch.select(self._given_out)
        except Exception as error:
            if self._busy is None:  # it was arranged as before
                raise
            self._failure = (
                self._set_aside.of_whole(error, self.budget.limit) if isinstance(error, BudgetError) else error
            )
            raise self._failure from error.__cause__
        finally:
            self.stats.count_disk(self.disk_counts)
            self.stats.peak_bytes = self.budget.peak
            if self._deadlines is not None:
                self.stats.late, self.stats.worst_lateness_s = self._deadlines.lateness
        self._busy = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resolved(relation: AnyRelation, stream: pa.Schema | JoinSpec, terms: JoinTerms) -> JoinSpec:
    if isinstance(stream, pa.Schema):
        return JoinSpec.of(relation, stream, **terms)
    if terms:
        raise InvalidArgument(f"the join is resolved already; {', '.join(terms)} cannot be given beside a JoinSpec.")
    return stream


def _carried_schema(stream_schema: pa.Schema, *, ordered: bool, deadlines: bool) -> pa.Schema:
    """What the operator sees of the stream: its columns, then our own, which do not come out."""
    own = [(NUMBER_COLUMN, pa.int64(), ordered), (DEADLINE_COLUMN, pa.float64(), deadlines)]
    for name, type_, used in own:
        if used:
            if name in stream_schema.names:
                raise InvalidArgument(f"column {name!r} has a name that semistream keeps for itself; rename it.")
            stream_schema = stream_schema.append(pa.field(name, type_, nullable=False))
    return stream_schema


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
