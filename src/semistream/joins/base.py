"""SemiStreamJoin: the base class of all operators, with push, step and flush, order, deadlines and versions of R."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Self, Unpack, cast

import pyarrow as pa

from semistream.budget import MemoryBudget, parse_bytes
from semistream.errors import BudgetError, InvalidArgument, JoinFailed, JoinInProgress
from semistream.joins.condition.spec import JoinSpec, JoinTerms
from semistream.joins.loop import Results
from semistream.joins.parts.deadlines import Clock, DeadlineRule, Deadlines, DrainCost, Lateness
from semistream.joins.parts.emitter import Emitter, PairWatcher, StreamRows
from semistream.joins.parts.ordered_output import OrderedOutput
from semistream.joins.parts.stats import JoinStats
from semistream.joins.requirements import Requirements, carried_schema, usual_bytes
from semistream.joins.resources import Arrangement, SetAside
from semistream.kernels.array_types import Bools, Int64s
from semistream.keys.plain_types import BatchConverter, require_same_values
from semistream.relation import AnyRelation, Disk, DiskCosts, DiskCounts, ParquetRelation, Relation
from semistream.storage.locks import OwnProcess


class SemiStreamJoin(Requirements, Arrangement):
    """Base class of the operators, which join a stream S, pushed batch by batch, with a relation R on disk.

    `push` takes a batch of any size and steps to make room for it, `step` runs one iteration of the operator's loop,
    and `flush` steps until no tuple waits. Each returns an iterator of result batches of bounded size. Iterating does
    the work, and an iterator must be exhausted before the next call. The results of all calls together are, as a
    multiset, exactly the batch join of all pushed rows, however they are split into batches. Nulls match nothing. All
    buffers of the operator fit in ``memory``.

    A subclass sets its own attributes, then calls ``super().__init__``, which calls `arrange`. ``options`` maps the
    names of its own arguments to checks of their values. Operators with ``needs_index`` find rows by R's key and refuse
    conditions that do not restrict it; those with ``needs_equality`` also refuse ranges. Only operators with
    ``takes_unclustered`` scan plain Parquet, where equality on any columns is enough.

    Parameters
    ----------
    relation : Relation or ParquetRelation
        The relation R.
    stream : pyarrow.Schema or JoinSpec
        The columns of S, of any Arrow types, or a resolved join, which excludes ``on``, ``where``, ``how``, ``columns``
        and ``suffix``.
    on : str, sequence of str, or mapping of str to str, optional
        Columns that must be equal: names that both sides have, or a mapping from stream to relation columns.
    where : str, pyarrow.compute.Expression, or a sequence of both, optional
        Further conditions: comparisons as text (``"s.at BETWEEN r.since AND r.until"``, ``"abs(s.x - r.k) <= 5"``) or
        Arrow expressions over the joined row.
    how : str
        "inner" (default), "left", "semi" or "anti", or Spark's name of one, such as "left_outer".
    columns : str, sequence of str, or mapping of str to str, optional
        Columns of R in the result. A mapping such as ``{"price": "unit_price"}`` gives them other names there. Default:
        all columns that ``on`` does not name.
    suffix : str
        Appended to a column name of R that S has too. Default: "_right".
    memory : int, str or MemoryBudget
        Budget of the whole operator: bytes, text such as "64MB", or a share of R's bytes such as "10%". Default: a
        tenth of R, but at least 1 MB and what the operator needs.
    disk : str or Disk
        "direct", "buffered", "auto" (default: direct where the file system supports it), or a disk to read R with.
    ordered : bool
        True for results in stream order; `OrderedOutput` explains the cost.
    deadline_s : float or str, optional
        Longest wait of a tuple in seconds, or the stream column that holds its deadline (`DeadlineRule`).
    clock : callable
        Clock of the deadlines, in seconds. Default: `time.monotonic`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import MeshJoin, Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     orders = pa.record_batch({"product": [2, 9, 1]})
    ...     with MeshJoin(products, orders.schema, on={"product": "id"}, memory="1MB", ordered=True) as join:
    ...         results = [*join.push(orders), *join.flush()]
    >>> pa.Table.from_batches(results).to_pylist()
    [{'product': 2, 'name': 'cola'}, {'product': 1, 'name': 'tea'}]

    References
    ----------
    MESH 2 (the problem) and Theorem 3.1 (exactness); SSIJ IV-E (versions of R), IV-F (deadlines); docs/operators.md.
    """

    _emitter: Emitter

    def __init__(
        self,
        relation: AnyRelation,
        stream: pa.Schema | JoinSpec,
        *,
        memory: int | str | MemoryBudget | None = None,
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
        carried = carried_schema(stream_schema, ordered=ordered, deadlines=rule is not None)
        self._deadline_column = len(carried) - 1
        self.schema = spec.given_schema
        self.spec = spec.with_stream(relation, carried)
        self._open(self._accept(relation))
        self.require_condition(relation, self.spec)
        own = range(len(stream_schema), len(carried))
        self._given_out = [i for i in range(len(self.spec.schema)) if i not in own]
        given = usual_bytes(relation) if memory is None else memory
        self.budget = given if isinstance(given, MemoryBudget) else MemoryBudget(given, of=relation.nbytes)
        self._set_aside = SetAside(ordered=ordered, deadlines=rule is not None, converts=spec.converts)
        self._clock = clock
        self._process = OwnProcess()
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
        self._put_together(may_grow=memory is None)

    def push(self, batch: pa.RecordBatch) -> Results:
        """Take a batch, and return the results of the steps that make room for it.

        If the stream is declared with encodings or extension types, each batch may have its own, as long as it stands
        for values of the same types.
        """
        require_same_values(batch, self.stream_schema, "a batch", convertible=self._set_aside.converts)
        return self._drive("push", self._pushed(batch, self._next_relation))

    def step(self) -> Results:
        """Run one iteration of the operator's loop; do nothing if no tuple waits."""
        return self._drive("step", self._stepped())

    def flush(self) -> Results:
        """Step until no tuple waits."""
        return self._drive("flush", self.drain())

    def poll(self) -> Results:
        """Join all waiting tuples if `due_s` has come, so that none misses its deadline; otherwise do nothing."""
        return self._drive("poll", self._hurry())

    def refresh(self, relation: AnyRelation) -> None:
        """Switch to another version of R for all tuples pushed from now on (SSIJ IV-E).

        Later calls finish the waiting tuples with the version under which they were pushed. Every tuple is joined with
        exactly one version, and ``stats.versions`` counts the tuples per version.
        """
        if (relation.key, relation.schema) != (self.relation.key, self.relation.schema):
            raise InvalidArgument(
                f"version {relation.version} of {relation.path} has the columns ({_describe(relation.schema)}) and the "
                f"key ({', '.join(relation.key)}), unlike the version being joined. Create a new operator."
            )
        self._next_relation = self._accept(relation)

    def set_memory(self, memory: int | str) -> Results:
        """Join all waiting tuples, then change the budget.

        Raises `BudgetError` and keeps the old budget if the new one is too small.
        """
        return self._drive("set_memory", self._with_memory(parse_bytes(memory, of=self._whole_bytes)))

    def watch_pairs(self, watcher: PairWatcher | None) -> None:
        """Report each pair with matching codes to ``watcher`` as it is found; a front stage learns hot keys from it."""
        self._watcher = watcher
        self._attach_watcher()

    def watch_joined(self, watcher: PairWatcher | None) -> None:
        """Report the R-row of every result pair to ``watcher``.

        Operators with a cache report nothing.
        """
        self._joined_watcher = watcher
        self._attach_watcher()

    def _convert(self, nbytes: int) -> None:
        if nbytes:
            self.budget.charge("conversions", nbytes)
        self._entering = BatchConverter(self.stream_schema, nbytes // 2)
        self._leaving = BatchConverter(self.schema, nbytes // 2)

    def _attach_watcher(self) -> None:
        self._emitter.watcher = self._watcher
        self._emitter.joined_watcher = self._joined_watcher

    @property
    def due_s(self) -> float:
        """Clock time from which `poll` has work: the first deadline minus the expected time to drain; inf if none."""
        if self._deadlines is None:
            return math.inf
        return self._deadlines.earliest_s - self._drain_cost.expected_s(self.pages_to_drain() + self.pages_asked())

    def close(self) -> None:
        """Stop the background reader and close files. Waiting tuples are dropped."""
        self._disk.close()

    @property
    def disk_counts(self) -> DiskCounts:
        return self._disk.counts

    @property
    def _read_costs(self) -> DiskCosts:
        """Disk costs that plans assume, for pages that each consist of several segments."""
        return self._disk.costs.in_segments(self.relation.segments)

    def share_deadlines(self, deadlines: Deadlines | None, column: int) -> None:
        """Report finished tuples to the deadlines of the stage in front; ``column`` holds each tuple's deadline."""
        self._deadlines, self._deadline_column = deadlines, column

    def _done(self, stream: StreamRows, positions: Int64s, matched: Bools) -> None:
        """Count finished tuples and remove their deadlines; ``matched`` flags those with a match."""
        self.stats.count_done(matched)
        if self._deadlines is not None:
            self._deadlines.leave(stream.take(positions, [self._deadline_column])[0].to_numpy())

    def _pushed(self, batch: pa.RecordBatch, relation: Relation | None) -> Results:
        """Take a batch, after switching to the version ``relation`` if it is not None."""
        self._pushed_s = self._clock()
        if relation is not None:
            yield from self.drain()
            self._go_over(relation)
        before = self.stats.rows_in
        for piece in self._entering.pieces(batch):
            yield from self._push_stamped(piece) if self._order is None else self._order.push(piece)
        versions = self.stats.versions
        versions[self.relation.version] = versions.get(self.relation.version, 0) + self.stats.rows_in - before
        yield from self._hurry()

    def _push_stamped(self, batch: pa.RecordBatch) -> Results:
        """Feed tuples, stamped with their deadlines if there are any, in slices that fit the memory for deadlines."""
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
        """Rearrange between two batches. On an error restore the previous arrangement, so that the join can go on."""
        before = self.relation, self.budget.limit
        try:
            self.rearrange(relation, limit)
        except Exception:
            self._take_apart(*before)
            self._put_together()
            self._busy = None
            raise

    def _accept(self, relation: AnyRelation) -> Relation:
        """Return ``relation`` narrowed to the columns of this join; refuse Parquet if the operator cannot scan it."""
        if isinstance(relation, ParquetRelation) and not self.takes_unclustered:
            codec = self.spec.condition.codec
            raise relation.refuse(self.name, codec.names if codec else ())
        self._whole_bytes = relation.nbytes  # shares of memory refer to all of R, even if the join reads only a part
        # A Parquet relation passes as a Relation: only operators that refuse Parquet use what a Relation alone has.
        return cast(Relation, relation.reading(self.spec.relation_columns))

    def _push_through(self, batch: pa.RecordBatch) -> Results:
        """Join a group of tuples completely, after saving the counts for `_forget`."""
        self._counted = self.row_counts()
        if self._deadlines is not None:
            self._lateness = self._deadlines.lateness
        yield from self._push_stamped(batch)
        yield from self.drain()

    def _forget(self) -> None:
        """Undo the counts of the last `_push_through`, because its tuples will be joined again."""
        self.recount(self._counted)
        if self._deadlines is not None:
            self._deadlines.lateness = self._lateness

    def _drive(self, call: str, results: Results) -> Results:
        self._process.require()
        if self._failure is not None:
            raise JoinFailed(
                f"{self._busy}() failed ({type(self._failure).__name__}: {self._failure}) and lost the waiting tuples, "
                f"so {call}() cannot start. Create a new operator, and push all unanswered tuples again."
            ) from self._failure
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed completely, so {call}() cannot start. "
                f"Write `for batch in operator.{self._busy}(...)`, or list(...)."
            )
        self._busy = call
        return self._driven(results)

    def _driven(self, results: Results) -> Results:
        try:
            for batch in results:
                given = batch if len(self._given_out) == batch.num_columns else batch.select(self._given_out)
                for piece in self._leaving.pieces(given):
                    self.stats.outputs += piece.num_rows
                    self.stats.batches += 1
                    yield piece
                    self._process.require()
        except Exception as error:
            if self._busy is None:  # _change restored the previous arrangement
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
        raise InvalidArgument(f"a JoinSpec already has all terms of the join; do not give {', '.join(terms)} as well.")
    return stream


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
