"""estimate: what COUNT, SUM and AVG over all results would be, told from the results of a sample of stream rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.shedding.clusters import Clusters, group_rows
from semistream.shedding.sample_columns import SAMPLE_COLUMNS
from semistream.shedding.stream_part import Floats

_AGGREGATE = re.compile(r"^\s*(count|sum|avg)\s*\(\s*(\*|.+?)\s*\)\s*$", re.IGNORECASE)


def estimate(table: pa.Table, aggregate: str, *, by: str | Sequence[str] = (), confidence: float = 0.95) -> pa.Table:
    """``count(*)``, ``count(column)``, ``sum(column)`` or ``avg(column)`` over all results, from those that were kept.

    ``table`` holds results of joining rows that `SampleW` or `ClusterSampling` has kept, of one batch or many, with the
    columns of `with_sample_columns`. They may have been filtered, and rows without a match may be missing: a stream row
    that is not there counts as one that adds nothing. For each group of ``by`` that is present, or for all, there is
    one row with the columns ``estimate``, ``low``, ``high`` and ``standard_error``. As in SQL, nulls are left out, and
    a sum or an average of nothing is null.

    Guarantee: the estimates of COUNT and SUM are unbiased, and that of AVG, a ratio of the two, nearly; the true value
    lies between ``low`` and ``high`` in about ``confidence`` of all samples, if the estimate is made of some dozens of
    stream rows (the interval is a normal one). Of a batch from which a single row was drawn, nothing can be said of the
    error, and the interval is infinite.

    The results of one stream row are a cluster: they are kept or lost together, so that the variance is one between
    stream rows. They are known by ``_sample_batch`` and ``_sample_row``. With weights g, y the sum over the results of
    a row, n rows drawn in a batch, and d the sum of (1 - 1/g) over these rows (J. Hájek, Ann. Math. Statist. 35(4),
    1964), the variance is, summed over batches,

        n / (n - 1) * (sum of g (g - 1) y**2  -  (sum of (g - 1) y)**2 / d).

    With equal weights that is the variance of a uniform sample without replacement, its finite population correction
    included. If not all n rows are in the table, d is what was to be expected when they were drawn.

    >>> results = pa.table({"_weight": [2.0, 2.0], "_sample_batch": [0, 0], "_sample_row": [1, 3],
    ...                     "_sample_drawn": [2, 2], "_sample_spread": [1.0, 1.0], "amount": [10, 30]})
    >>> estimate(results, "sum(amount)").column("estimate").to_pylist()
    [80.0]
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
    """For each group, a value and its standard error."""

    value: Floats
    error: Floats

    @classmethod
    def of(cls, clusters: Clusters, values: Floats) -> _Total:
        total, variance = clusters.total(values)
        return cls(total, np.sqrt(variance))


def _ratio(clusters: Clusters, summed: _Total, counted: _Total, values: Floats, present: Floats) -> _Total:
    """A sum by a count; its error is that of the sum of what each row deviates from it (Taylor)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = summed.value / counted.value
        deviation = values - np.where(present > 0, mean[clusters.groups.of_row], 0.0)
        _, variance = clusters.total(deviation)
        return _Total(mean, np.sqrt(variance) / counted.value)


def _values(table: pa.Table, column: str, *, numeric: bool) -> tuple[Floats, Floats]:
    """The values of a column with 0 for null, and for each row whether it has one."""
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
