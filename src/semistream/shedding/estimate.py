"""Estimate COUNT, SUM and AVG over all join results from the results of a sample of stream rows.

`with_sample_columns` adds columns that sampled rows carry through the join, so that `estimate` needs nothing but its
results. The results of one stream row form a cluster (`Clusters`), which a sample keeps or loses as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Floats, Int64s
from semistream.shedding.decision import Decision, Kept
from semistream.shedding.stream_part import StreamPart

WEIGHT, BATCH, ROW, DRAWN, SPREAD = "_weight", "_sample_batch", "_sample_row", "_sample_drawn", "_sample_spread"

SAMPLE_COLUMNS = pa.schema(
    [
        pa.field(WEIGHT, pa.float64(), nullable=False),
        pa.field(BATCH, pa.int64(), nullable=False),
        pa.field(ROW, pa.int64(), nullable=False),
        pa.field(DRAWN, pa.int64(), nullable=False),
        pa.field(SPREAD, pa.float64(), nullable=False),
    ]
)
"""Columns added to kept rows:

- ``_weight``: number of stream rows that this one represents, 1 over its probability to be kept;
- ``_sample_batch``, ``_sample_row``: the batch and the row in it; all results with the same two come from one stream
  row and form a cluster;
- ``_sample_drawn``, ``_sample_spread``: design of the batch's sample (`SampleDesign`), the same for all its rows.
"""


def with_sample_columns(
    batch: pa.RecordBatch, part: StreamPart, kept: Kept, decision: Decision, *, batch_id: int
) -> pa.RecordBatch:
    """Add the columns that `estimate` reads from the results to the kept rows of a part.

    The columns are `SAMPLE_COLUMNS`. Carry them through the join unchanged.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        The kept rows (`Kept.split`), in order.
    part : StreamPart
        The part they come from.
    kept : Kept
        The rows of the part that were kept.
    decision : Decision
        The decision of a strategy that keeps a sample, `SampleW` or `ClusterSampling`.
    batch_id : int
        Number of the batch, different for all batches estimated together.

    Examples
    --------
    >>> from semistream.shedding import SampleW
    >>> part, rows = StreamPart(4), pa.record_batch({"id": [1, 2, 3, 4]})
    >>> decision = SampleW().decide([SampleW().summarize(part)], 2, seed=5)
    >>> kept = decision.apply(part)
    >>> with_sample_columns(kept.split(rows)[0], part, kept, decision, batch_id=0).column("_weight").to_pylist()
    [2.0, 2.0]

    References
    ----------
    docs/shedding.md.
    """
    design = decision.design
    if design is None:
        raise InvalidArgument(
            f"{decision.strategy} keeps no sample, so rows have no weights. Use sample_w or cluster_sampling (loss: "
            "random_sample) for estimates."
        )
    if batch.num_rows != kept.rows:
        raise InvalidArgument(
            f"the batch has {batch.num_rows} rows, but {kept.rows} are kept; give the kept rows only."
        )
    if taken := [name for name in SAMPLE_COLUMNS.names if name in batch.schema.names]:
        raise InvalidArgument(f"the stream already has columns called {', '.join(taken)}; rename them.")
    n = batch.num_rows
    columns = [
        pa.array(kept.weights),
        pa.array(np.full(n, batch_id, np.int64)),
        pa.array(part.row_ids[kept.mask]),
        pa.array(np.full(n, design.drawn, np.int64)),
        pa.array(np.full(n, design.spread)),
    ]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *SAMPLE_COLUMNS]))


@dataclass(frozen=True)
class Groups:
    """Group of each row of a table; ``keys`` has one row for each of the ``number`` groups."""

    of_row: Int64s
    keys: pa.Table
    number: int


def group_rows(table: pa.Table, names: Sequence[str]) -> Groups:
    """Group rows by equal values in the columns ``names``, nulls included; without columns, all are one group."""
    if not names:
        return Groups(np.zeros(table.num_rows, np.int64), table.select([]), 1)
    of_row = np.zeros(table.num_rows, np.int64)
    for name in names:
        encoded = pc.dictionary_encode(table.column(name).combine_chunks(), null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        pairs = of_row * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        of_row = np.unique(pairs, return_inverse=True)[1]
    _, first, of_row = np.unique(of_row, return_index=True, return_inverse=True)
    return Groups(of_row.astype(np.int64), table.select(list(names)).take(pa.array(first)), first.size)


@dataclass(frozen=True)
class Clusters:
    """Stream rows behind a table of results, each once for every group in which it has results.

    Parameters
    ----------
    groups
        Groups of the table's rows.
    of_row
        Cluster of each result within its group.
    weight, group, batch
        For each cluster: the number of stream rows it represents, its group, and the index of its batch.
    drawn, spread
        For each batch: the number of stream rows drawn, and the sum of (1 - 1 / weight) over them.
    """

    groups: Groups
    of_row: Int64s
    weight: Floats
    group: Int64s
    batch: Int64s
    drawn: Floats
    spread: Floats

    @classmethod
    def of(cls, table: pa.Table, groups: Groups) -> Clusters:
        """Find the clusters of results that carry the columns of a sample."""
        weight, drawn, spread = (_column(table, name) for name in (WEIGHT, DRAWN, SPREAD))
        if not np.all(weight >= 1):
            raise InvalidArgument(
                f"{WEIGHT} has {weight[~(weight >= 1)][0]}; weights are 1 or more. Leave them unchanged."
            )
        _, first_of_batch, batch = np.unique(_column(table, BATCH), return_index=True, return_inverse=True)
        _, row = np.unique(_column(table, ROW), return_inverse=True)
        _, first, stream_row = np.unique(batch * max(table.num_rows, 1) + row, return_index=True, return_inverse=True)
        if not np.array_equal(weight[first][stream_row], weight):
            raise InvalidArgument(
                f"results of one stream row have different values of {WEIGHT}; leave the weights unchanged."
            )
        spread = _spread(weight[first], batch[first], drawn[first_of_batch], spread[first_of_batch])
        pairs = groups.of_row * max(first.size, 1) + stream_row
        _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)
        return cls(
            groups,
            of_row.astype(np.int64),
            weight[first],
            groups.of_row[first],
            batch[first].astype(np.int64),
            drawn[first_of_batch],
            spread,
        )

    def total(self, values: Floats) -> tuple[Floats, Floats]:
        """Return for each group the estimated total of the values over all results, and its variance (`estimate`)."""
        y = _sums(self.of_row, values, self.weight.size)
        g = self.weight
        total = _sums(self.group, g * y, self.groups.number)
        strata, stratum = np.unique(self.group * max(self.drawn.size, 1) + self.batch, return_inverse=True)
        group, batch = np.divmod(strata, max(self.drawn.size, 1))
        squares = _sums(stratum, g * (g - 1) * y * y, strata.size)
        sums = _sums(stratum, (g - 1) * y, strata.size)
        drawn, spread = self.drawn[batch], self.spread[batch]
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.maximum(squares - sums**2 / spread, 0.0) * drawn / (drawn - 1)
        within[drawn == 1] = np.inf
        within[squares == 0] = 0.0  # all rows were kept for certain, or add nothing
        return total, _sums(group, within, self.groups.number)


def _spread(weight: Floats, batch: Int64s, drawn: Floats, expected: Floats) -> Floats:
    """Return for each batch the sum of (1 - 1 / weight) over its drawn rows; the expected sum if some are missing."""
    by_chance = weight > 1
    there = np.bincount(batch[by_chance], minlength=drawn.size)
    found = _sums(batch, 1 - 1 / weight, drawn.size)
    return np.where(there == drawn, found, np.maximum(expected, found))


def _sums(place: Int64s, values: Floats, size: int) -> Floats:
    """Sum the values by place."""
    return np.asarray(np.bincount(place, values, minlength=size), np.float64)


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        raise InvalidArgument(f"{name} has {column.null_count} nulls; give only results of sampled rows.")
    return np.asarray(column.to_numpy())


_AGGREGATE = re.compile(r"^\s*(count|sum|avg)\s*\(\s*(\*|.+?)\s*\)\s*$", re.IGNORECASE)


def estimate(table: pa.Table, aggregate: str, *, by: str | Sequence[str] = (), confidence: float = 0.95) -> pa.Table:
    """Estimate ``count(*)``, ``count(column)``, ``sum(column)`` or ``avg(column)`` over all results from a sample.

    Guarantee: the estimates of COUNT and SUM are unbiased; that of AVG, a ratio of the two, nearly so. The true value
    lies between ``low`` and ``high`` in about ``confidence`` of all samples, if the estimate rests on a few dozen
    stream rows or more (the interval is a normal one). If a single row was drawn from a batch, its error is unknown,
    and the interval is infinite.

    The results of one stream row, identified by ``_sample_batch`` and ``_sample_row``, are a cluster: they are kept or
    lost together, so the variance is taken between stream rows. With weights g, y the sum over the results of a row, n
    rows drawn in a batch, and d the sum of (1 - 1/g) over these rows, the variance is, summed over batches,

        n / (n - 1) * (sum of g (g - 1) y**2  -  (sum of (g - 1) y)**2 / d).

    With equal weights this is the variance of a uniform sample without replacement, with its finite population
    correction. If some of the n rows are not in the table, d is its expected value at the time of the draw. Results
    with weight 0 belong to rows that were shed and joined later (``semistream reconcile``). The sample already
    represents them, so they are ignored: an estimate is the same before and after the repair.

    Parameters
    ----------
    table : pyarrow.Table
        Join results of rows kept by `SampleW` or `ClusterSampling`, from one or more batches, with the columns of
        `with_sample_columns`. It may be filtered, and may lack rows without a match: a missing stream row counts as one
        that adds nothing.
    aggregate : str
        The aggregate and its column. As in SQL, nulls are ignored, and a sum or average of nothing is null.
    by : str or sequence of str
        Columns to group by; none by default.
    confidence : float
        Share of the samples whose interval holds the true value, between 0 and 1.

    Returns
    -------
    pyarrow.Table
        One row for each group of ``by`` in the table, or one in all, with the columns ``estimate``, ``low``, ``high``
        and ``standard_error``.

    Examples
    --------
    >>> results = pa.table({"_weight": [2.0, 2.0], "_sample_batch": [0, 0], "_sample_row": [1, 3],
    ...                     "_sample_drawn": [2, 2], "_sample_spread": [1.0, 1.0], "amount": [10, 30]})
    >>> estimate(results, "sum(amount)").column("estimate").to_pylist()
    [80.0]

    References
    ----------
    MESH 4.1, RANDOM-SAMPLE. J. Hájek, Ann. Math. Statist. 35(4), 1964. docs/shedding.md.
    """
    found = _AGGREGATE.match(aggregate)
    if found is None or (found[2] == "*" and found[1].lower() != "count"):
        raise InvalidArgument(
            f"the aggregate is {aggregate!r}; give count(*), count(column), sum(column) or avg(column)."
        )
    if isinstance(confidence, bool) or not 0 < confidence < 1:
        raise InvalidArgument(f"confidence is {confidence!r}; give a share between 0 and 1, such as 0.95.")
    names = [by] if isinstance(by, str) else list(by)
    function, column = found[1].lower(), found[2]
    needed = [*SAMPLE_COLUMNS.names, *names, *([] if column == "*" else [column])]
    for name in needed:
        if name not in table.column_names:
            raise ColumnNotFound(name, table.column_names, where="the table of results")
    table = table.filter(pc.fill_null(pc.not_equal(table.column(WEIGHT), 0.0), True))
    values, present = _values(table, column, numeric=function != "count")
    groups = group_rows(table, names)
    clusters = Clusters.of(table, groups)
    counted = _Total.of(clusters, present)
    if function == "count":
        answer = counted
    else:
        summed = _Total.of(clusters, values)
        answer = summed if function == "sum" else _ratio(clusters, summed, counted, values, present)
    margin = NormalDist().inv_cdf((1 + confidence) / 2) * answer.error
    told = {
        "estimate": answer.value,
        "low": answer.value - margin,
        "high": answer.value + margin,
        "standard_error": answer.error,
    }
    nothing = (counted.value == 0) & (function != "count")
    columns = {name: pa.array(column, mask=nothing) for name, column in told.items()}
    return pa.table({**{name: groups.keys.column(name) for name in names}, **columns})


class _Total(NamedTuple):
    """Value of each group, and its standard error."""

    value: Floats
    error: Floats

    @classmethod
    def of(cls, clusters: Clusters, values: Floats) -> _Total:
        total, variance = clusters.total(values)
        return cls(total, np.sqrt(variance))


def _ratio(clusters: Clusters, summed: _Total, counted: _Total, values: Floats, present: Floats) -> _Total:
    """Divide a sum by a count; the error is that of the summed deviations from the mean (Taylor linearisation)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = summed.value / counted.value
        deviation = values - np.where(present > 0, mean[clusters.groups.of_row], 0.0)
        _, variance = clusters.total(deviation)
        return _Total(mean, np.sqrt(variance) / counted.value)


def _values(table: pa.Table, column: str, *, numeric: bool) -> tuple[Floats, Floats]:
    """Return the values of a column, with 0 for null, and for each row 1 if its value is not null, else 0."""
    if column == "*":
        ones = np.ones(table.num_rows)
        return ones, ones
    array = table.column(column)
    present: Floats = pc.is_valid(array).to_numpy().astype(np.float64)
    if not numeric:
        return present, present
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InvalidArgument(f"column {column!r} is {kind}; sum and avg take numbers. Cast it first.")
    values = pc.fill_null(pc.cast(array, pa.float64(), safe=False), 0.0).to_numpy()
    return np.array(values, np.float64), present
