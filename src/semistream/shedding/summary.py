"""PartSummary: what the driver is told of a part before it decides, a few numbers whatever the rows.

Quotas: how many of the rows that are as good as each other each part keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int64s
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
    """The histograms of all parts of a batch together: classes of rows with equal matches and seconds.

    Parts are in the order of their numbers, whatever the order they came in, so that a replay decides the same.

    Parameters
    ----------
    numbers
        Of the parts, ascending.
    matches, seconds, rows
        Of each class, by ascending seconds, then matches: what a row gives and takes, and how many there are.
    entry_class, entry_part, entry_rows
        How many rows of a class are in a part, wherever there are some.
    """

    numbers: tuple[int, ...]
    matches: Int64s
    seconds: Floats
    rows: Int64s
    entry_class: Int64s
    entry_part: Int64s
    entry_rows: Int64s

    @classmethod
    def of(cls, parts: Sequence[PartSummary]) -> BatchSummary:
        """The batch that the parts are together."""
        ordered = sorted(parts, key=lambda part: part.number)
        numbers = tuple(int(part.number) for part in ordered)
        if len(set(numbers)) < len(numbers):
            twice = next(number for number in numbers if numbers.count(number) > 1)
            raise InvalidArgument(f"part {twice} was summed up twice; give each part of the batch once.")
        if (total := sum(part.total for part in ordered)) >= MOST_BATCH_ROWS:
            raise InvalidArgument(f"the batch has {total} rows; shed batches of fewer than {MOST_BATCH_ROWS}.")
        none = np.empty(0, np.int64)
        seconds = np.concatenate([np.empty(0), *(part.seconds for part in ordered)])
        matches = np.concatenate([none, *(part.matches for part in ordered)])
        entry_part = np.repeat(np.arange(len(ordered)), [part.rows.size for part in ordered])
        order = np.lexsort((matches, seconds))
        seconds, matches = seconds[order], matches[order]
        first = np.ones(order.size, np.bool_)
        first[1:] = (seconds[1:] != seconds[:-1]) | (matches[1:] != matches[:-1])
        entry_class = np.cumsum(first) - 1
        entry_rows = np.concatenate([none, *(part.rows for part in ordered)])[order]
        rows = np.zeros(np.count_nonzero(first), np.int64)
        np.add.at(rows, entry_class, entry_rows)
        return cls(numbers, matches[first], seconds[first], rows, entry_class, entry_part[order], entry_rows)

    def rows_in_parts(self, classes: Bools | None = None) -> tuple[int, ...]:
        """How many rows of some classes, or of all, each part has."""
        return self._in_parts(self.entry_rows, classes)

    def results_in_parts(self, classes: Bools | None = None) -> tuple[int, ...]:
        """How many results the rows of some classes, or of all, give in each part."""
        return self._in_parts(self.entry_rows * self.matches[self.entry_class], classes)

    def _in_parts(self, values: Int64s, classes: Bools | None) -> tuple[int, ...]:
        summed = np.zeros(len(self.numbers), np.int64)
        chosen = slice(None) if classes is None else classes[self.entry_class]
        np.add.at(summed, self.entry_part[chosen], values[chosen])
        return tuple(summed.tolist())


def _histogram(values: Int64s) -> tuple[Int64s, Int64s]:
    """Different values, ascending, and how often each comes."""
    if values.size and values.max() < max(2 * values.size, _COUNTED_BY_VALUE):
        rows = np.bincount(values)
        present = np.flatnonzero(rows)
        return present.astype(np.int64), rows[present].astype(np.int64)
    found, counts = np.unique(values, return_counts=True)
    return found.astype(np.int64), counts.astype(np.int64)


def chance_quotas(rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
    """How many of ``keep`` rows, a uniform sample of all, lie in each part: a multivariate hypergeometric draw.

    Part after part, the rows in it against the rows in those behind it. If each part then keeps so many of its own by
    a uniform sample, what is kept of the whole is a uniform sample of exactly ``keep`` rows: every set of that many is
    as likely as every other, though no task has seen the rows of another.

    >>> sum(chance_quotas([500, 300, 200], 100, seed=1))
    100
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    quotas, behind = [], sum(rows)
    for own in rows:
        behind -= own
        quotas.append(int(generator.hypergeometric(own, behind, keep)))
        keep -= quotas[-1]
    return tuple(quotas)


def even_quotas(rows: Sequence[int], keep: int) -> tuple[int, ...]:
    """``keep`` rows shared out in proportion to the rows of each part, so that no task gets more than its share.

    What rounding leaves goes to the largest remainders, of equal ones to the first.

    >>> even_quotas([50, 30, 20], 11)
    (6, 3, 2)
    """
    total = sum(rows)
    if not total:
        return (0,) * len(rows)
    quotas = [own * keep // total for own in rows]
    by_remainder = sorted(range(len(rows)), key=lambda part: -(rows[part] * keep % total))
    for part in by_remainder[: keep - sum(quotas)]:
        quotas[part] += 1
    return tuple(quotas)


def last_quotas(rows: Sequence[int], keep: int) -> tuple[int, ...]:
    """``keep`` rows in as few parts as can be, the last ones: all parts but one keep all of their rows or none.

    >>> last_quotas([50, 30, 20], 35)
    (0, 15, 20)
    """
    quotas = [0] * len(rows)
    for part in range(len(rows) - 1, -1, -1):
        quotas[part] = min(rows[part], keep)
        keep -= quotas[part]
    return tuple(quotas)
