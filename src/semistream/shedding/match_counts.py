"""MatchCounts: f_R, the number of rows that R has for a key, inside a share of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError, InvalidArgument
from semistream.kernels.key_counts import look_up_counts
from semistream.kernels.search import positions_of
from semistream.kernels.types import Int64s
from semistream.relation import AnyRelation, ParquetRelation, Relation
from semistream.shedding.count_clustered import count_anew, count_clustered
from semistream.shedding.count_scattered import count_scattered
from semistream.shedding.counted_keys import SLOT_BYTES, CountedKeys
from semistream.shedding.stored_counts import load_counts, store_counts

_BUFFER = "match counts"
LEAST_BYTES = 64 * SLOT_BYTES


@dataclass(frozen=True)
class MatchCounts:
    """How many rows of one version of R a stream row joins with, by its key code: the paper's ``f_R``.

    If the counts of all keys fit the memory, they are exact. If not, those of the keys with the most rows are kept, and
    every other key has at most `bound` rows. If no key has more than one row, nothing is kept at all: `unique`.

    A clustered relation is counted by one scan of its key codes, in which the rows of a key follow each other: listed
    counts are exact however small the memory is. Plain Parquet holds them anywhere; there, listed counts may be too low
    by up to `slack` (Misra & Gries; see `count_scattered`). After an update `refreshed` counts the touched keys alone.

    It is for joins by equality of the key. A code of strings or of several columns is a hash: should two keys ever
    share one, both have the rows of both.

    MESH 4.2: "f_R(i) can be derived from the distribution of values in the join attributes of R".

    >>> import tempfile, pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relation = Relation.build(pa.table({"id": [1, 2, 2, 2]}), f"{folder}/r", key="id")
    ...     counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    ...     counts.matches(np.array([2, 1, 9])).tolist(), counts.unique
    ([3, 1, 0], False)
    """

    version: int
    counted: CountedKeys
    budget: MemoryBudget

    @classmethod
    def of(
        cls,
        relation: AnyRelation,
        budget: MemoryBudget,
        *,
        on: Sequence[str] | None = None,
        store: bool = True,
    ) -> MatchCounts:
        """Count the keys of a relation within what is free in ``budget``; at most a quarter is held afterwards.

        While R is read, two buffers of 1 MB (or of its largest page) come on top.

        Counts of a clustered relation are kept beside its version and found again (``store``), those of an earlier
        version too, so that all but the first time only what has changed is counted. ``on`` names the columns of plain
        Parquet that are joined with; a clustered relation knows its key.
        """
        if budget.free < LEAST_BYTES:
            raise BudgetError(
                f"match counts got {budget.free} bytes; they need at least {LEAST_BYTES}. Raise the share to that.",
                least_bytes=LEAST_BYTES,
            )
        slots = budget.free // SLOT_BYTES
        with budget.charged(_BUFFER, budget.free):
            if isinstance(relation, ParquetRelation):
                if not on:
                    raise InvalidArgument("on is empty; name the columns of the Parquet files that the stream joins.")
                counted = count_scattered(relation, on, slots)
            else:
                counted = _counted(relation, slots, store)
        return cls._held(relation.version, counted, budget)

    @classmethod
    def _held(cls, version: int, counted: CountedKeys, budget: MemoryBudget) -> MatchCounts:
        budget.charge(_BUFFER, counted.nbytes)
        return cls(version, counted, budget)

    def release(self) -> None:
        """Give the memory back; the counts are not to be used any more."""
        self.budget.release(_BUFFER, self.counted.nbytes)

    def refreshed(self, relation: Relation, *, store: bool = True) -> MatchCounts:
        """The counts of a later version; these here are released. Only keys that updates have touched are counted.

        If it is not known which those are, or there are too many of them, all keys are counted.
        """
        if relation.version == self.version:
            return self
        free = self.budget.free
        with self.budget.charged(_BUFFER, free):
            slots = (free + self.counted.nbytes) // SLOT_BYTES
            counted = count_anew(relation, self.version, self.counted, slots)
        self.release()
        if counted is None:
            return MatchCounts.of(relation, self.budget, store=store)
        if store:
            store_counts(relation, counted, slots)
        return self._held(relation.version, counted, self.budget)

    @property
    def unique(self) -> bool:
        """Whether no key of R has more than one row; each stream row then gives at most one result."""
        return self.counted.bound <= 1 and not bool(np.any(self.counted.counts > 1)) and self.counted.slack == 0

    @property
    def exact(self) -> bool:
        """Whether `matches` is right for every key."""
        return self.counted.bound == 0 and self.counted.slack == 0

    @property
    def bound(self) -> int:
        """A key that is not listed has at most so many rows; 0 if all keys are listed."""
        return self.counted.bound

    @property
    def slack(self) -> int:
        """A listed count is too low by at most that; 0 for clustered relations."""
        return self.counted.slack

    def matches(self, codes: Int64s) -> Int64s:
        """The number of rows for each code: what is listed, else the average of the keys that are not.

        That average is at least 1, so that no row that may have results is taken to have none: a sample in which such
        rows had no chance could not be put right by weights.
        """
        found = np.empty(codes.size, np.int64)
        look_up_counts(codes, self.counted.codes, self.counted.counts, self.counted.unlisted, found)
        return found

    def bounds(self, codes: Int64s) -> tuple[Int64s, Int64s]:
        """The least and the most rows that each code can have."""
        present, at = positions_of(codes, self.counted.codes)
        low = np.zeros(codes.size, np.int64)
        high = np.full(codes.size, self.counted.bound, np.int64)
        low[present] = self.counted.counts[at[present]]
        high[present] = low[present] + self.counted.slack
        return low, high


def _counted(relation: Relation, slots: int, store: bool) -> CountedKeys:
    """Counts as they were stored, or made from those of an earlier version, or from all of R."""
    if not store:
        return count_clustered(relation, slots)
    if (stored := load_counts(relation, relation.version, slots)) is not None:
        return stored
    earlier = [version for version in relation.versions() if version < relation.version]
    counted = None
    for version in reversed(earlier):
        if (older := load_counts(relation, version, slots)) is not None:
            counted = count_anew(relation, version, older, slots)
            break
    if counted is None:
        counted = count_clustered(relation, slots)
    store_counts(relation, counted, slots)
    return counted
