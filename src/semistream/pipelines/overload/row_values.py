"""ValuedRows: estimate how many results each source row gives, from match counts of one relation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.kernels.array_types import Int64s
from semistream.keys import KeyCodec
from semistream.pipelines.carried_types import convert_batch
from semistream.relation import Relation
from semistream.shedding import MatchCounts


@dataclass(frozen=True)
class ValuedRows:
    """Value of rows: their number of matches in one version of the relation at ``path``.

    The columns ``on`` of a row equal the relation's key. Each row gives at least ``least_results``. Each worker holds
    the counts in ``counts_bytes``; if keys are ``unique``, it needs none. With ``more_conditions``, not every key match
    is a result.
    """

    path: str
    version: int
    on: tuple[str, ...]
    counts_bytes: int
    unique: bool
    least_results: int = 0
    more_conditions: bool = False

    def matches(self, batches: Iterable[pa.RecordBatch], source: pa.Schema) -> Int64s:
        """Return the number of results of each row; the columns ``on`` of batches may have the types of a file."""
        counts, codec = _counts(self.path, self.version, self.counts_bytes)
        wanted = pa.schema([source.field(name) for name in self.on])
        found = [np.zeros(0, np.int64)]
        for batch in batches:
            try:
                rows = convert_batch(batch.select(list(self.on)), wanted)
            except Exception:  # some rows are invalid and go to the quarantine, but which is not known yet
                found.append(np.full(batch.num_rows, self.least_results, np.int64))
                continue
            codes, possible = codec.encode(rows.columns)
            matches = counts.matches(codes)
            if possible is not None:
                matches[~possible] = 0
            found.append(np.maximum(matches, self.least_results))
        return np.concatenate(found)

    def bounds(self, rows: pa.RecordBatch) -> tuple[int, int]:
        """Return the least and the most results that these rows give in total."""
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
        """Return the least and the most results that any ``rows`` rows give in total; keys must be unique."""
        assert self.unique
        least = 0 if self.more_conditions else self.least_results
        return least * rows, rows


@lru_cache(maxsize=2)
def _counts(path: str, version: int, nbytes: int) -> tuple[MatchCounts, KeyCodec]:
    """Load the counts that the driver stored beside the relation; cached, as a worker process outlives its tasks."""
    relation = Relation.open(path, version)
    return MatchCounts.of(relation, MemoryBudget(nbytes)), relation.codec
