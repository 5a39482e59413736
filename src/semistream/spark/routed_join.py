"""RoutedJoin: a worker has one part of R at a time, for rows that were sent to the owner of their key."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from semistream.joins import SemiStreamJoin
from semistream.spark.engines import Engine
from semistream.spark.routing import split_rows


class RoutedJoin:
    """Joins rows with the part of R that holds their matches, whichever that is.

    Rows of another part than the one at hand are rare if routing did its work; then what waits is joined first.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._plan = engine.plan
        self._part = 0
        self._operator: SemiStreamJoin | None = None

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; results come out when room has to be made for it."""
        plan, codec = self._plan, self._engine.relation.codec
        for owner, piece in split_rows(batch, plan.stream_keys, codec, plan.cuts, self._part):
            if self._operator is not None and owner != self._part:
                yield from self._operator.flush()
            self._part = owner
            self._operator = self._engine.operator(owner)
            yield from self._operator.push(piece)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Join all rows that wait."""
        if self._operator is not None:
            yield from self._operator.flush()
