"""Independent truncation of the relations of a join; the number of relations bounds the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s


@dataclass(frozen=True)
class IndependentTruncation:
    """Result of an independent truncation.

    ``retained`` holds the retained rows of each relation, ascending; ``results`` of the ``exact`` results remain.
    Every choice of as many rows loses at least ``least_lost`` results. This one loses at most m times that, for m
    relations.
    """

    retained: list[Int64s]
    results: int
    exact: int
    least_lost: int

    @property
    def lost(self) -> int:
        """Number of results lost."""
        return self.exact - self.results


def independent_truncation(
    lineage: npt.ArrayLike, sizes: Sequence[int], *, drop: Sequence[int]
) -> IndependentTruncation:
    """Drop the rows with the fewest results from each relation, for any join of m relations.

    For three or more relations the best choice is NP-hard (Theorem 3). This choice loses at most m times as much as the
    best one: if relation i alone loses p_i results, every choice loses at least the largest p_i, and this one at most
    their sum.

    Parameters
    ----------
    lineage : array of int
        One line per result of the whole join, with the row number of each relation.
    sizes : sequence of int
        Number of rows of each relation.
    drop : sequence of int
        Number of rows to drop from each relation.

    Returns
    -------
    IndependentTruncation
        ``retained`` rows of each relation, ``results`` and ``exact`` results, and ``least_lost``, the results that
        every choice loses.

    Examples
    --------
    >>> orders_customers_cities = [[0, 0, 0], [1, 0, 0], [2, 1, 0]]
    >>> join = independent_truncation(orders_customers_cities, sizes=[3, 2, 1], drop=[1, 1, 0])
    >>> [rows.tolist() for rows in join.retained], join.results, join.least_lost
    ([[1, 2], [0], [0]], 1, 1)

    References
    ----------
    WINDOW 3.4, Theorem 3.
    """
    lines = np.asarray(lineage, dtype=np.int64).reshape(-1, len(sizes))
    if len(drop) != len(sizes):
        raise InvalidArgument(f"drop has {len(drop)} numbers for {len(sizes)} relations; give one for each.")
    lost = np.zeros(len(lines), dtype=np.bool_)
    retained, least = [], 0
    for i, (size, number) in enumerate(zip(sizes, drop, strict=True)):
        rows = lines[:, i]
        if rows.size and not 0 <= rows.min() <= rows.max() < size:
            raise InvalidArgument(f"lineage names rows {rows.min()} to {rows.max()} of relation {i}, which has {size}.")
        if not 0 <= number <= size:
            raise InvalidArgument(f"drop is {number} of relation {i}; give a whole number from 0 to {size}.")
        dropped = np.zeros(size, dtype=np.bool_)
        dropped[np.argsort(np.bincount(rows, minlength=size), kind="stable")[:number]] = True
        of_this = dropped[rows]
        least = max(least, int(of_this.sum()))
        lost |= of_this
        retained.append(np.flatnonzero(~dropped))
    return IndependentTruncation(retained, int((~lost).sum()), len(lines), least)
