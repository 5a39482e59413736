"""join(): chooses an operator, runs it over a stream of batches, and returns a `JoinedStream` of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from semistream.budget import format_bytes
from semistream.errors import ResultsConsumed
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.condition import JoinOn
from semistream.joins.condition.spec import Columns, JoinSpec
from semistream.joins.condition.where import Where
from semistream.joins.loop import Results
from semistream.joins.parts.stats import JoinStats
from semistream.joins.resources import SetAside
from semistream.keys.plain_types import BatchConverter
from semistream.relation import AnyRelation, open_relation
from semistream.relation.write.sources import open_as_given
from semistream.tuning.choose_operator import choose_operator, join_bytes

_SLICE_ROWS = _SAMPLE_ROWS = 1 << 16
_SAMPLE_BYTES = 1 << 20
_ALL_RETURNED = "all results have been returned"


class JoinedStream:
    """The results of a join: an iterator of record batches, and an Arrow stream (``__arrow_c_stream__``).

    `join` returns one. Iterating does the work: it pushes the batches of the stream one after the other, then flushes.
    The results are exactly those of the batch join, and are returned once: to iterate again raises `ResultsConsumed`.
    Closing the stream, or dropping the last reference to it, stops the background threads of the join and closes its
    files.

    Parameters
    ----------
    operator : SemiStreamJoin
        The operator to run. The stream closes it at the end.
    batches : iterator of pyarrow.RecordBatch
        The batches to push, with the columns that the operator expects.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation, join
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     joined = join(pa.table({"id": [2, 9, 1]}), products, on="id", memory="1MB")
    ...     joined.schema.names, sum(batch.num_rows for batch in joined), joined.stats.unmatched
    (['id', 'name'], 2, 1)

    References
    ----------
    docs/operators.md.
    """

    def __init__(self, operator: SemiStreamJoin, batches: Iterator[pa.RecordBatch]) -> None:
        self._operator = operator
        self._results = _drive(operator, batches)
        self._ended: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the results."""
        return self._operator.schema

    @property
    def stats(self) -> JoinStats:
        """Counts of the operator's work so far."""
        return self._operator.stats

    def __repr__(self) -> str:
        operator = self._operator
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        terms = f"{operator.name} {operator.spec.how} join with {operator.relation.path}"
        return f"JoinedStream({terms}, memory {format_bytes(operator.budget.limit)}: {columns})"

    def explain(self) -> str:
        """Describe the running operator, the relation, and the bytes charged to each buffer."""
        operator = self._operator
        budget = operator.budget
        parts = "\n".join(f"  {name:<14} {format_bytes(held):>9}" for name, held in budget.by_name.items())
        return (
            f"{operator.name} join ({operator.spec.how}) on {operator.spec.condition.text} with "
            f"{operator.relation.path} (version {operator.relation.version}, {operator.relation.num_rows} rows in "
            f"{operator.relation.num_pages} pages, {format_bytes(operator.relation.nbytes)})\n"
            f"budget {format_bytes(budget.limit)}, in use {format_bytes(budget.used)}:\n{parts}"
        )

    def read_all(self) -> pa.Table:
        """Return all remaining results as one table; raise `ResultsConsumed` if all have been returned already."""
        self._require_results()
        return pa.Table.from_batches(list(self), self.schema)

    def close(self) -> None:
        """Stop the join, and close the operator."""
        self._results.close()  # type: ignore[attr-defined]
        self._operator.close()
        self._ended = self._ended or "the join was closed"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._ended == _ALL_RETURNED:
            self._require_results()
        return self

    def _require_results(self) -> None:
        """Raise `ResultsConsumed` if there are no results, which are not the same as no rows."""
        if self._ended is not None:
            raise ResultsConsumed(
                f"{self._ended}, after {self.stats.outputs} rows: a join returns its results once. Call join() again, "
                "or keep the table that read_all() returned."
            )

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._results)
        except StopIteration:
            self._ended = self._ended or _ALL_RETURNED
            raise
        except Exception as error:
            self._ended = f"the join failed ({type(error).__name__}: {error})"
            raise

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self._require_results()
        reader = pa.RecordBatchReader.from_batches(self.schema, self)
        return reader.__arrow_c_stream__(requested_schema)


def _drive(operator: SemiStreamJoin, batches: Iterator[pa.RecordBatch]) -> Results:
    """Yield all results. Holds no reference to the `JoinedStream`, so that dropping the stream ends the join."""
    try:
        for batch in batches:
            yield from operator.push(batch)
        yield from operator.flush()
    finally:
        operator.close()


def join(
    batches: Any,
    relation: AnyRelation | str,
    *,
    on: JoinOn | None = None,
    where: Where | None = None,
    how: str = "inner",
    operator: str | type[SemiStreamJoin] = "auto",
    memory: int | str | None = None,
    columns: Columns | None = None,
    suffix: str = "_right",
    **options: Any,
) -> JoinedStream:
    """Join a stream of record batches with a relation, or with plain Parquet, within ``memory``.

    The results are, as a multiset, exactly those of the batch join. They come in stream order with ``ordered=True``.
    Nulls match nothing. The first batch is read at once, as a sample for the choice of the operator; the others are
    read as the results are consumed.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch, object with ``__arrow_c_stream__``, or str
        The stream S. A string is a path to Parquet, Arrow IPC or CSV.
    relation : Relation, ParquetRelation or str
        The relation R, or the path of one.
    operator : str or type
        "auto" (default: the operator that the tuner expects to be fastest), the name of an operator such as "mesh", or
        a subclass of `SemiStreamJoin`.
    memory : int or str
        Budget of the whole operator: bytes, text such as "64MB", or a share of R's bytes such as "10%". Default: a
        tenth of R, but at least 1 MB and what the operator needs.
    on, where, how, columns, suffix
        The terms of the join, as in `SemiStreamJoin`.
    **options
        Other arguments of `SemiStreamJoin`, or of the chosen operator.

    Returns
    -------
    JoinedStream
        An iterator of result batches: the columns of S, then those of R.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     orders = pa.table({"product": [2, 2, 9], "amount": [5, 1, 4]})
    ...     join(orders, products, on={"product": "id"}, memory="1MB").read_all().to_pylist()
    [{'product': 2, 'amount': 5, 'name': 'cola'}, {'product': 2, 'amount': 1, 'name': 'cola'}]

    Conditions other than equality go in ``where``, with or without ``on``:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rates = Relation.build(pa.table({"least": [1, 10], "rate": [9, 7]}), f"{folder}/r", key="least")
    ...     orders = pa.table({"amount": [5, 12]})
    ...     join(orders, rates, where="s.amount >= r.least", columns=["rate"], memory="1MB").read_all().to_pylist()
    [{'amount': 5, 'rate': 9}, {'amount': 12, 'rate': 9}, {'amount': 12, 'rate': 7}]

    References
    ----------
    MESH 2 (the problem) and 3.4 (conditions); docs/operators.md, docs/tuning.md (the choice of the operator).
    """
    opened = relation if isinstance(relation, AnyRelation) else open_relation(relation)
    schema, stream = _open_stream(batches)
    first = next(stream, None)
    spec = JoinSpec.of(opened, schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
    memory_bytes = join_bytes(memory, operator, opened, spec, options)
    own_bytes = SetAside(converts=spec.converts).operator_bytes(memory_bytes)
    sample = None if first is None else _sample(first, spec.stream_schema)
    choice = choose_operator(operator, opened, spec, own_bytes, sample=sample)
    choice.kind.require_options(options)
    budget = None if memory is None else memory_bytes  # without a limit of the user's, options may raise it
    started = choice.kind(opened, spec, memory=budget, **choice.starting_options(options), **options)
    return JoinedStream(started, stream if first is None else chain([first], stream))


def _open_stream(batches: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of a stream and its batches; an iterable without a schema gets that of its first batch."""
    if isinstance(batches, Iterable) and not hasattr(batches, "__arrow_c_stream__") and not isinstance(batches, str):
        items = iter(batches)
        first = next(items, None)
        if isinstance(first, pa.RecordBatch):
            return first.schema, chain([first], items)
        batches = chain([first], items) if first is not None else ()
    reader = open_as_given(batches)
    return reader.schema, _in_slices(reader)


def _in_slices(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield batches of a size to which operators adapt: a table may be a single one."""
    for batch in reader:
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            yield batch.slice(start, _SLICE_ROWS)


def _sample(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the first rows of a batch in plain types, as a sample for the choice of the operator."""
    pieces: list[pa.RecordBatch] = []
    for piece in BatchConverter(schema, _SAMPLE_BYTES).pieces(batch.slice(0, _SAMPLE_ROWS)):
        pieces.append(piece)
        if sum(each.nbytes for each in pieces) > 16 * _SAMPLE_BYTES:
            break
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
