"""StreamPart: the rows of one task, as far as shedding needs to know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.datasets.zipf import whole_number
from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Floats, Int64s
from semistream.keys import KeyCodec
from semistream.keys.plain_types import plain_batch
from semistream.shedding.match_counts import MatchCounts

MOST_ROWS = 1 << 40  # of a part: a row id has 40 bits for the row, after 22 for the part
MOST_PARTS = 1 << 22


@dataclass(frozen=True)
class StreamPart:
    """One part of a batch: its rows, in reading order.

    Parameters
    ----------
    rows : int
        Number of rows.
    number : int
        Number of the part within the batch; 0 by default. A replay must divide the batch into the same parts: a row is
        identified by the number of its part and its position there.
    matches : array of int, optional
        Number of results of each row, the paper's ``f_R(i)``; at least one for a join that also returns unmatched rows.
        `KeepW` and `SampleW` do not need it.
    seconds : array of float, optional
        Join time of each row in seconds, for strategies that weigh costs (``experiments/cost_aware_top_w.py``). It has
        a few distinct values, such as one for keys in the cache's front stage and one for all others.

    Examples
    --------
    >>> StreamPart(3, matches=np.array([2, 0, 5])).rows
    3

    References
    ----------
    MESH 4.2: ``f_R(i)``. docs/shedding.md.
    """

    rows: int
    number: int = 0
    matches: Int64s | None = None
    seconds: Floats | None = None

    def __post_init__(self) -> None:
        whole_number("rows", self.rows, least=0, most=MOST_ROWS - 1)
        whole_number("number", self.number, least=0, most=MOST_PARTS - 1)
        for name, values in (("matches", self.matches), ("seconds", self.seconds)):
            if values is not None and values.shape != (self.rows,):
                raise InvalidArgument(f"{name} has shape {values.shape} for {self.rows} rows; give one value per row.")
        if self.matches is not None:
            if not np.issubdtype(self.matches.dtype, np.integer):
                raise InvalidArgument(f"matches are {self.matches.dtype}; give whole numbers.")
            if self.rows and self.matches.min() < 0:
                raise InvalidArgument(f"matches has {self.matches.min()}; give each row 0 results or more.")
        if self.seconds is not None and not np.all((self.seconds >= 0) & np.isfinite(self.seconds)):
            wrong = self.seconds[~((self.seconds >= 0) & np.isfinite(self.seconds))]
            raise InvalidArgument(f"seconds has {wrong[0]}; give each row a finite cost of 0 seconds or more.")

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        on: Sequence[str],
        codec: KeyCodec,
        counts: MatchCounts,
        *,
        number: int = 0,
        least_results: int = 0,
        seconds: Floats | None = None,
    ) -> StreamPart:
        """Build the part of an Arrow batch, with the matches of each row by its key columns ``on``.

        ``least_results`` is 1 for joins that also return unmatched rows (left), else 0.
        """
        for name in on:
            if name not in batch.schema.names:
                raise ColumnNotFound(name, batch.schema.names, where="the stream's batch")
        codes, possible = codec.encode(plain_batch(batch.select(list(on))).columns)
        matches = counts.matches(codes)
        if possible is not None:
            matches[~possible] = 0
        return cls(batch.num_rows, number, np.maximum(matches, least_results), seconds)

    @classmethod
    def concat(cls, pieces: Sequence[StreamPart]) -> StreamPart:
        """Concatenate pieces of one part, in reading order; `Kept.slice` recovers the rows of each.

        >>> pieces = [StreamPart(2, 5, np.array([1, 2])), StreamPart(1, 5, np.array([3]))]
        >>> StreamPart.concat(pieces).matches.tolist()
        [1, 2, 3]
        """
        if len(numbers := {piece.number for piece in pieces}) != 1:
            raise InvalidArgument(f"the pieces are of parts {sorted(numbers)}; give pieces of one part.")
        columns: dict[str, Any] = {}
        for name in ("matches", "seconds"):
            values = [getattr(piece, name) for piece in pieces]
            if any(each is None for each in values) != all(each is None for each in values):
                raise InvalidArgument(f"only some of the pieces have {name}; give it for all pieces or for none.")
            columns[name] = None if values[0] is None else np.concatenate(values)
        return cls(sum(piece.rows for piece in pieces), numbers.pop(), **columns)

    @property
    def row_ids(self) -> Int64s:
        """Number of each row, unique within the batch."""
        return np.arange(self.rows, dtype=np.int64) + (self.number << 40)

    def require_matches(self, strategy: str) -> Int64s:
        """Return the matches; refuse a part without them, which ``strategy`` needs."""
        if self.matches is None:
            raise InvalidArgument(f"{strategy} needs the matches of each row; give StreamPart(matches=...).")
        return self.matches

    def require_seconds(self, strategy: str) -> Floats:
        """Return the seconds; refuse a part without them, which ``strategy`` needs."""
        if self.seconds is None:
            raise InvalidArgument(f"{strategy} needs the seconds of each row; give StreamPart(seconds=...).")
        return self.seconds
