"""Chain: consecutive joins, each fed with the results of the previous one, and the rows that end or stop on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.kernels.array_types import Bools, Int64s
from semistream.pipelines.steps.row_flags import RowFlags


class EnteredRows:
    """Unique numbers for the rows that enter a link, in ``column``, and their old numbers when they leave it.

    Rows need them because all results of one source row share its number.

    >>> entered = EnteredRows("n")
    >>> rows = entered.enter(pa.record_batch({"n": [7, 7]}))
    >>> rows.column("n").to_pylist(), entered.leave(rows).column("n").to_pylist()
    ([0, 1], [7, 7])
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._old = np.zeros(0, np.int64)
        self._rows = 0
        self._met = RowFlags()

    def enter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with new numbers."""
        begin, end = self._rows, self._rows + rows.num_rows
        if end > self._old.size:
            more = np.zeros(max(end, 2 * self._old.size) - self._old.size, np.int64)
            self._old = np.concatenate([self._old, more])
        self._old[begin:end] = rows.column(self._column).to_numpy()
        self._rows = end
        return self._numbered(rows, np.arange(begin, end))

    def leave(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with their old numbers."""
        return self._numbered(rows, self._old[rows.column(self._column).to_numpy()])

    def first(self, rows: pa.RecordBatch, matched: Bools) -> Bools:
        """Return a mask of the matched results that are the first of their row, over all calls."""
        numbers, here = rows.column(self._column).to_numpy(), np.flatnonzero(matched)
        _, places = np.unique(numbers[here], return_index=True)
        places = here[places]
        first = np.zeros(numbers.size, np.bool_)
        first[places] = ~self._met.are_set(numbers[places])
        self._met.set(numbers[places])
        return first

    def _numbered(self, rows: pa.RecordBatch, numbers: Int64s) -> pa.RecordBatch:
        at = rows.schema.get_field_index(self._column)
        return rows.set_column(at, rows.schema.field(at), pa.array(numbers))


ROW = "__row"
"""Column with the number of a row within its task, by which outcomes are counted."""

_TOGETHER = 1 << 15  # rows gathered before they enter the next join

Missed = Literal["end", "keep", "wait", "stall"]
Outcome = Literal["joined", "unmatched", "duplicate", "deferred", "waiting", "stalled", "silent"]


class Joins(Protocol):
    """Join as a chain uses it: `push` yields results while rows come, `flush` those of all rows still inside."""

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...

    def flush(self) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class Link:
    """Rules that turn the results of a left join into rows that go on, end or stop.

    The first ``width`` columns of a result are those of the row that came. The column ``marker`` has R's key, null for
    rows without a match; it goes on only if ``keeps_marker``, renamed to ``into`` if given.

    ``how`` decides which rows go on:

    - ``"inner"``: matched rows, once for each match;
    - ``"semi"``: matched rows, once each;
    - ``"anti"``: rows without a match; matched rows end unmatched;
    - ``"first"``: matched rows are duplicates and end, or go on marked in the column ``flag``, if given.

    Except with ``"anti"``, ``missed`` decides what happens to rows without a match: they ``"end"`` unmatched, go on
    with nulls (``"keep"``), ``"wait"`` for R's next version, or ``"stall"`` until their ``keys`` are known. A row with
    a null in one of the ``keys`` can never match, and ends unmatched instead of stalling.
    """

    label: str
    how: Literal["inner", "semi", "anti", "first"]
    width: int
    marker: int
    keeps_marker: bool = False
    missed: Missed = "end"
    keys: tuple[str, ...] = ()
    into: str | None = None
    flag: str | None = None

    def passed_on(self, results: pa.Schema) -> pa.Schema:
        """Return the columns of rows that go on, given those of the join's results."""
        schema = results if self.keeps_marker else results.remove(self.marker)
        if self.into is not None:
            schema = schema.set(self.marker, schema.field(self.marker).with_name(self.into))
        return schema if self.flag is None else schema.append(pa.field(self.flag, pa.bool_()))


@dataclass(frozen=True)
class Stopped:
    """Rows that go no further for now, with their outcome and the number of the link that decided it.

    ``silent`` rows passed all links but are not emitted. ``deferred``, ``waiting`` and ``stalled`` rows have the
    columns of rows that enter the link.
    """

    rows: pa.RecordBatch
    outcome: Outcome
    link: int


class Chain:
    """Consecutive joins. A row may have several results in each; each result goes its own way.

    With ``defers``, rows that a join cannot answer from memory stop there. Small batches of results are gathered into
    larger ones before the next join.

    >>> import tempfile
    >>> from semistream import Relation, MeshJoin
    >>> rows, wanted = pa.record_batch({ROW: [0, 1], "k": [2, 7]}), ["name", "id"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     r = Relation.build(pa.table({"id": [1, 2], "name": ["a", "b"]}), f"{folder}/r", key="id")
    ...     with MeshJoin(r, rows.schema, on={"k": "id"}, how="left", columns=wanted, memory="1MB") as join:
    ...         chain = Chain([(Link("products", "inner", width=2, marker=3), join)])
    ...         stopped = [*chain.push(rows), *chain.flush()]
    >>> [(each.outcome, each.rows.to_pylist()) for each in stopped]  # doctest: +NORMALIZE_WHITESPACE
    [('joined', [{'__row': 0, 'k': 2, 'name': 'b'}]),
     ('unmatched', [{'__row': 1, 'k': 7, 'name': None}])]
    """

    def __init__(self, links: Sequence[tuple[Link, Joins]], *, defers: bool = False) -> None:
        self._links = links
        self._defers = defers
        self._gathered: list[list[pa.RecordBatch]] = [[] for _ in links]
        self._entered = [EnteredRows(ROW) if link.how in ("semi", "anti") else None for link, _ in links]

    def push(self, rows: pa.RecordBatch, link: int = 0) -> Iterator[Stopped]:
        """Push rows into a link, and yield the rows that stop meanwhile."""
        if link == len(self._links):
            yield Stopped(rows, "joined", link)
            return
        join, entered = self._links[link][1], self._entered[link]
        rows = rows if entered is None else entered.enter(rows)
        if self._defers and hasattr(join, "answer"):
            for given, answered in join.answer(rows):
                if answered:
                    yield from self._follow(given, link)
                else:
                    yield Stopped(given if entered is None else entered.leave(given), "deferred", link)
            return
        for results in join.push(rows):
            yield from self._follow(results, link)

    def resume(self, rows: pa.RecordBatch, link: int, first: pa.BooleanArray) -> Iterator[Stopped]:
        """Resume rows stalled at a link of kind ``"first"``; ``first`` flags the first row of each key."""
        yield from self._tell_apart(rows, pc.invert(first), link)

    def flush(self) -> Iterator[Stopped]:
        """Push all rows still inside to their end, and yield them."""
        for link, (_, join) in enumerate(self._links):
            yield from self._push_gathered(link)
            for results in join.flush():
                yield from self._follow(results, link)

    def _follow(self, results: pa.RecordBatch, at: int) -> Iterator[Stopped]:
        link = self._links[at][0]
        marks = results.column(link.marker)
        rows = results if link.keeps_marker else results.remove_column(link.marker)
        if link.into is not None:
            rows = pa.RecordBatch.from_arrays(rows.columns, schema=link.passed_on(results.schema))
        if link.how == "inner" and (link.missed == "keep" or not marks.null_count):
            yield from self._go_on(rows, at)
            return
        matched, entered = marks.is_valid(), self._entered[at]
        if entered is not None:
            first = pa.array(entered.first(rows, matched.to_numpy(zero_copy_only=False)))
            rows = entered.leave(rows)
        missed = rows.filter(pc.invert(matched)) if marks.null_count else rows.slice(0, 0)
        if link.how == "inner":
            yield from self._go_on(rows.filter(matched), at)
            yield from self._missed(missed, at)
        elif link.how == "first":
            yield from self._tell_apart(rows.filter(matched), None, at)
            yield from self._missed(missed, at)
        else:
            found = rows.filter(first)
            if link.how == "semi":
                yield from self._go_on(found, at)
                yield from self._missed(missed, at)
            else:
                yield from self._go_on(missed, at)
                if found.num_rows:
                    yield Stopped(found, "unmatched", at)

    def _go_on(self, rows: pa.RecordBatch, at: int) -> Iterator[Stopped]:
        if not rows.num_rows:
            return
        if at + 1 == len(self._links):
            yield Stopped(rows, "joined", at + 1)
            return
        gathered = self._gathered[at + 1]
        gathered.append(rows)
        if sum(each.num_rows for each in gathered) >= _TOGETHER:
            yield from self._push_gathered(at + 1)

    def _push_gathered(self, link: int) -> Iterator[Stopped]:
        """Push the rows gathered for a link into it."""
        gathered = self._gathered[link]
        if gathered:
            rows = gathered[0] if len(gathered) == 1 else pa.concat_batches(gathered)
            self._gathered[link] = []
            yield from self.push(rows, link)

    def _missed(self, rows: pa.RecordBatch, at: int) -> Iterator[Stopped]:
        """Yield rows without a match, with the outcome that ``Link.missed`` gives them."""
        if not rows.num_rows:
            return
        link = self._links[at][0]
        if link.missed == "end":
            yield Stopped(rows, "unmatched", at)
            return
        if link.missed == "stall" and any(rows.column(name).null_count for name in link.keys):
            known = reduce(pc.and_, [rows.column(name).is_valid() for name in link.keys])
            yield Stopped(rows.filter(pc.invert(known)), "unmatched", at)
            rows = rows.filter(known)
        if rows.num_rows:
            yield Stopped(rows.select(range(link.width)), "stalled" if link.missed == "stall" else "waiting", at)

    def _tell_apart(self, rows: pa.RecordBatch, duplicate: pa.BooleanArray | None, at: int) -> Iterator[Stopped]:
        """Separate duplicates from new rows; without a ``duplicate`` mask, all rows are duplicates."""
        if not rows.num_rows:
            return
        link = self._links[at][0]
        if link.flag is not None:
            flags = pa.array(np.ones(rows.num_rows, np.bool_)) if duplicate is None else duplicate
            yield from self._go_on(rows.append_column(link.flag, flags), at)
            return
        if duplicate is None:
            yield Stopped(rows, "duplicate", at)
            return
        yield from self._go_on(rows.filter(pc.invert(duplicate)), at)
        doubled = rows.filter(duplicate)
        if doubled.num_rows:
            yield Stopped(doubled, "duplicate", at)
