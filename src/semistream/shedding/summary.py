"""Summaries of parts for the driver's decision, and quotas: how many of equally valuable rows each part keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Floats, Int64s
from semistream.shedding.stream_part import StreamPart

MOST_BATCH_ROWS = 10**9  # limit of numpy's hypergeometric draw, used for quotas
_COUNTED_BY_VALUE = 1 << 16


@dataclass(frozen=True)
class PartSummary:
    """Histogram of a part: ``rows[i]`` rows give ``matches[i]`` results each and take ``seconds[i]`` each.

    It is ordered by seconds, then matches, and small: k distinct numbers of matches need 1 + 2 + ... + k rows of R, so
    there are at most ``sqrt(2 |R|)``, 45 thousand for 10**9 rows, and usually a few hundred.

    Parameters
    ----------
    number : int
        Number of the part within the batch.
    matches : array of int
        Results of a row of each class.
    seconds : array of float
        Join time of a row of each class in seconds; 0 if the strategy does not weigh costs.
    rows : array of int
        Number of rows of each class.

    Examples
    --------
    >>> summary = PartSummary.of_matches(StreamPart(4, matches=np.array([5, 1, 1, 1])), "top_w")
    >>> summary.matches.tolist(), summary.rows.tolist(), summary.total
    ([1, 5], [3, 1], 4)

    References
    ----------
    docs/shedding.md.
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
        """Summarise only the number of rows."""
        rows = np.array([part.rows] if part.rows else [], np.int64)
        return cls(part.number, np.zeros(rows.size, np.int64), np.zeros(rows.size), rows)

    @classmethod
    def of_matches(cls, part: StreamPart, strategy: str) -> PartSummary:
        """Count the rows by matches."""
        matches, rows = _histogram(part.require_matches(strategy))
        return cls(part.number, matches, np.zeros(rows.size), rows)


@dataclass(frozen=True)
class BatchSummary:
    """Combined histogram of all parts of a batch: classes of rows with equal matches and seconds.

    Parts are ordered by number, whatever the order of arrival, so that a replay decides the same.

    Parameters
    ----------
    numbers
        Numbers of the parts, ascending.
    matches, seconds, rows
        For each class, by ascending seconds, then matches: results and seconds of a row, and the number of rows.
    entry_class, entry_part, entry_rows
        Rows of a class in a part, one entry for each non-empty combination.
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
        """Combine the summaries of all parts of a batch."""
        ordered = sorted(parts, key=lambda part: part.number)
        numbers = tuple(int(part.number) for part in ordered)
        if len(set(numbers)) < len(numbers):
            twice = next(number for number in numbers if numbers.count(number) > 1)
            raise InvalidArgument(f"part {twice} was summarised twice; give each part of the batch once.")
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
        """Return the rows of each part, of all classes or those of a mask."""
        return self._in_parts(self.entry_rows, classes)

    def results_in_parts(self, classes: Bools | None = None) -> tuple[int, ...]:
        """Return the results of each part, of all classes or those of a mask."""
        return self._in_parts(self.entry_rows * self.matches[self.entry_class], classes)

    def _in_parts(self, values: Int64s, classes: Bools | None) -> tuple[int, ...]:
        summed = np.zeros(len(self.numbers), np.int64)
        chosen = slice(None) if classes is None else classes[self.entry_class]
        np.add.at(summed, self.entry_part[chosen], values[chosen])
        return tuple(summed.tolist())


def _histogram(values: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct values, ascending, and the count of each."""
    if values.size and values.max() < max(2 * values.size, _COUNTED_BY_VALUE):
        rows = np.bincount(values)
        present = np.flatnonzero(rows)
        return present.astype(np.int64), rows[present].astype(np.int64)
    found, counts = np.unique(values, return_counts=True)
    return found.astype(np.int64), counts.astype(np.int64)


def chance_quotas(rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
    """Draw how many rows of a uniform sample of ``keep`` rows lie in each part (multivariate hypergeometric).

    The draw goes part by part: the rows in a part against those in all later ones. If each part then keeps its quota by
    a uniform sample of its own rows, the whole is a uniform sample of exactly ``keep`` rows: every set of that size is
    equally likely, though no task has seen the rows of another.

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
    """Divide ``keep`` rows in proportion to the rows of each part, so that no task gets more than its share.

    Rows left by rounding go to the parts with the largest remainders, and on ties to the first part.

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
    """Take ``keep`` rows from as few parts as possible, the last ones: all but one keep all of their rows or none.

    >>> last_quotas([50, 30, 20], 35)
    (0, 15, 20)
    """
    quotas = [0] * len(rows)
    for part in range(len(rows) - 1, -1, -1):
        quotas[part] = min(rows[part], keep)
        keep -= quotas[part]
    return tuple(quotas)
