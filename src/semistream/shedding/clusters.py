"""Clusters: the results of one stream row, which a sample keeps or loses together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidArgument
from semistream.kernels.types import Int64s
from semistream.shedding.sample_columns import BATCH, DRAWN, ROW, SPREAD, WEIGHT
from semistream.shedding.stream_part import Floats


@dataclass(frozen=True)
class Groups:
    """Which group each row of a table is in; ``keys`` has a row for each group."""

    of_row: Int64s
    keys: pa.Table
    number: int


def group_rows(table: pa.Table, names: Sequence[str]) -> Groups:
    """Rows with equal values in some columns are a group, also if the values are null; without columns, all are one."""
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
    """The stream rows that a table of results has come of, each once in every group that it has results in.

    Parameters
    ----------
    groups
        The groups of the table's rows.
    of_row
        For each result its cluster within its group.
    weight, group, batch
        Of each cluster: for how many stream rows it stands, its group, and the place of its batch among all.
    drawn, spread
        Of each batch: how many stream rows were drawn, and the sum of (1 - 1 / weight) over them.
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
        """The clusters of results that have the columns of a sample."""
        weight, drawn, spread = (_column(table, name) for name in (WEIGHT, DRAWN, SPREAD))
        if not np.all(weight >= 1):
            raise InvalidArgument(f"{WEIGHT} has {weight[~(weight >= 1)][0]}; a row stands for at least 1.")
        _, first_of_batch, batch = np.unique(_column(table, BATCH), return_index=True, return_inverse=True)
        _, row = np.unique(_column(table, ROW), return_inverse=True)
        _, first, stream_row = np.unique(batch * max(table.num_rows, 1) + row, return_index=True, return_inverse=True)
        if not np.array_equal(weight[first][stream_row], weight):
            raise InvalidArgument(
                f"results of one stream row have different values of {WEIGHT}; leave them as they were."
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
        """For each group the estimated total of a value of all results, and its variance (see `estimate`)."""
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
        within[squares == 0] = 0.0  # all of it was kept for certain, or adds nothing
        return total, _sums(group, within, self.groups.number)


def _spread(weight: Floats, batch: Int64s, drawn: Floats, expected: Floats) -> Floats:
    """The sum of (1 - 1 / weight) over the rows drawn in each batch: as it is if all are there, else as expected."""
    by_chance = weight > 1
    there = np.bincount(batch[by_chance], minlength=drawn.size)
    found = _sums(batch, 1 - 1 / weight, drawn.size)
    return np.where(there == drawn, found, np.maximum(expected, found))


def _sums(place: Int64s, values: Floats, size: int) -> Floats:
    """The sum of the values at each place."""
    return np.asarray(np.bincount(place, values, minlength=size), np.float64)


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        raise InvalidArgument(f"{name} has {column.null_count} nulls; give results of rows that a sample has kept.")
    return np.asarray(column.to_numpy())
