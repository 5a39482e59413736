"""PartSummary: what the driver is told of a part before it decides, a few numbers whatever the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.types import Int64s
from semistream.shedding.stream_part import Floats, StreamPart

MOST_COSTS = 64
MOST_BATCH_ROWS = 10**9  # quotas of parts are drawn from fewer
_COUNTED_BY_VALUE = 1 << 16


@dataclass(frozen=True)
class PartSummary:
    """A histogram of a part: ``rows[i]`` rows give ``matches[i]`` results each and take ``seconds[i]`` each.

    Ordered by seconds, then matches. Since keys with different numbers of rows in R share its rows, there are at most
    ``sqrt(2 |R|)`` different numbers of matches: 45 thousand for 10**9 rows, and mostly a few hundred.
    """

    number: int
    matches: Int64s
    seconds: Floats
    rows: Int64s

    @property
    def total(self) -> int:
        """Rows of the part."""
        return int(self.rows.sum())

    @classmethod
    def of_rows(cls, part: StreamPart) -> PartSummary:
        """Only how many rows there are."""
        rows = np.array([part.rows] if part.rows else [], np.int64)
        return cls(part.number, np.zeros(rows.size, np.int64), np.zeros(rows.size), rows)

    @classmethod
    def of_matches(cls, part: StreamPart, strategy: str) -> PartSummary:
        """Rows by their matches."""
        matches, rows = _histogram(part.require_matches(strategy))
        return cls(part.number, matches, np.zeros(rows.size), rows)

    @classmethod
    def of_costs(cls, part: StreamPart, strategy: str) -> PartSummary:
        """Rows by their matches and seconds."""
        matches = part.require_matches(strategy)
        seconds = part.require_seconds(strategy)
        costs = np.unique(seconds)
        if costs.size > MOST_COSTS:
            raise InvalidArgument(
                f"seconds has {costs.size} different values; give at most {MOST_COSTS}, such as one for cached keys "
                "and one for all others."
            )
        found = [_histogram(matches[seconds == cost]) for cost in costs]
        empty = np.empty(0, np.int64)
        return cls(
            part.number,
            np.concatenate([empty, *(values for values, _ in found)]),
            np.repeat(costs, [values.size for values, _ in found]),
            np.concatenate([empty, *(rows for _, rows in found)]),
        )


@dataclass(frozen=True)
class BatchSummary:
    """The histograms of all parts of a batch side by side: ``by_part[i, p]`` rows of class i are in part p.

    Parts are in the order of their numbers, whatever the order they came in, so that a replay decides the same.
    """

    numbers: tuple[int, ...]
    matches: Int64s
    seconds: Floats
    by_part: Int64s

    @classmethod
    def of(cls, parts: Sequence[PartSummary]) -> BatchSummary:
        """The batch that the parts are together."""
        ordered = sorted(parts, key=lambda part: part.number)
        numbers = tuple(part.number for part in ordered)
        if len(set(numbers)) < len(numbers):
            twice = next(number for number in numbers if numbers.count(number) > 1)
            raise InvalidArgument(f"part {twice} was summed up twice; give each part of the batch once.")
        if (total := sum(part.total for part in ordered)) >= MOST_BATCH_ROWS:
            raise InvalidArgument(f"the batch has {total} rows; shed batches of fewer than {MOST_BATCH_ROWS}.")
        none = np.empty(0, np.int64)
        seconds = np.concatenate([np.empty(0), *(part.seconds for part in ordered)])
        matches = np.concatenate([none, *(part.matches for part in ordered)])
        rows = np.concatenate([none, *(part.rows for part in ordered)])
        column = np.repeat(np.arange(len(ordered)), [part.rows.size for part in ordered])
        order = np.lexsort((matches, seconds))
        seconds, matches = seconds[order], matches[order]
        first = np.ones(order.size, np.bool_)
        first[1:] = (seconds[1:] != seconds[:-1]) | (matches[1:] != matches[:-1])
        by_part = np.zeros((np.count_nonzero(first), len(ordered)), np.int64)
        by_part[np.cumsum(first) - 1, column[order]] = rows[order]
        return cls(numbers, matches[first], seconds[first], by_part)

    @property
    def rows(self) -> Int64s:
        """Rows of each class in all parts."""
        summed: Int64s = self.by_part.sum(axis=1)
        return summed

    @property
    def rows_of_parts(self) -> tuple[int, ...]:
        """Rows of each part."""
        return tuple(self.by_part.sum(axis=0).tolist())


def _histogram(values: Int64s) -> tuple[Int64s, Int64s]:
    """Different values, ascending, and how often each comes."""
    if values.size and values.max() < max(2 * values.size, _COUNTED_BY_VALUE):
        rows = np.bincount(values)
        present = np.flatnonzero(rows)
        return present.astype(np.int64), rows[present].astype(np.int64)
    found, counts = np.unique(values, return_counts=True)
    return found.astype(np.int64), counts.astype(np.int64)
