"""ValuedRows: how many results rows of the source give, from what is known of the relation that they are valued by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import RelationError
from semistream.keys import KeyCodec
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.steps.row_flags import Numbers
from semistream.relation import Relation
from semistream.shedding import MatchCounts


@dataclass(frozen=True)
class ValuedRows:
    """Rows by their matches in one version of the relation at ``path``, whose key the columns ``on`` of rows equal.

    Each row gives at least ``least_results``, at most ``most_results`` if that is known. Counts are held in
    ``counts_bytes`` of each worker; if keys are ``unique`` there are none. With ``more_conditions`` matches of the key
    are not all results.
    """

    path: str
    version: int
    on: tuple[str, ...]
    counts_bytes: int
    unique: bool
    least_results: int = 0
    more_conditions: bool = False

    def matches(self, batches: Iterable[pa.RecordBatch], source: pa.Schema) -> Numbers:
        """How many results each row gives, of batches with the columns ``on``, in the types of a file or a stream."""
        counts, codec = _counts(self.path, self.version, self.counts_bytes)
        wanted = pa.schema([source.field(name) for name in self.on])
        found = [np.zeros(0, np.int64)]
        for batch in batches:
            try:
                rows = convert_batch(batch.select(list(self.on)), wanted)
            except RelationError:  # some are invalid, and go to the quarantine; of which nothing is known before
                found.append(np.full(batch.num_rows, self.least_results, np.int64))
                continue
            codes, possible = codec.encode(rows.columns)
            matches = counts.matches(codes)
            if possible is not None:
                matches[~possible] = 0
            found.append(np.maximum(matches, self.least_results))
        return np.concatenate(found)

    def bounds(self, rows: pa.RecordBatch) -> tuple[int, int]:
        """The least and the most results that rows of the source give all together."""
        if self.unique:
            return self.bounds_of_any(rows.num_rows)
        counts, codec = _counts(self.path, self.version, self.counts_bytes)
        codes, possible = codec.encode([rows.column(name) for name in self.on])
        low, high = counts.bounds(codes)
        if possible is not None:
            low[~possible] = high[~possible] = 0
        if self.more_conditions:
            low[:] = 0
        low, high = np.maximum(low, self.least_results), np.maximum(high, self.least_results)
        return int(low.sum()), int(high.sum())

    def bounds_of_any(self, rows: int) -> tuple[int, int]:
        """The least and the most results of so many rows, whichever they are, where keys are unique."""
        assert self.unique
        least = 0 if self.more_conditions else self.least_results
        return least * rows, rows


@lru_cache(maxsize=2)
def _counts(path: str, version: int, nbytes: int) -> tuple[MatchCounts, KeyCodec]:
    """Counts of a worker process, which outlives its tasks; the driver has stored them beside the relation."""
    relation = Relation.open(path, version)
    return MatchCounts.of(relation, MemoryBudget(nbytes)), relation.codec
