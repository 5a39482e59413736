"""SmallBatches: holds batches of the stream that are too small to be worth a level of their own."""

from __future__ import annotations

import pyarrow as pa


class SmallBatches:
    """Batches that wait for others, up to ``rows`` in all and ``nbytes``."""

    def __init__(self, rows: int, nbytes: int) -> None:
        self._most_rows = rows
        self._most_bytes = nbytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Hold a copy of a batch, if there is room for it."""
        nbytes = batch.nbytes + batch.num_columns * 8  # rounded up
        if self.rows + batch.num_rows > self._most_rows or self._bytes + nbytes > self._most_bytes:
            return False
        self._batches.append(pa.concat_batches([batch, batch.slice(0, 0)]))  # not the larger one that it may be of
        self._bytes += nbytes
        self.rows += batch.num_rows
        return True

    def take(self, more: pa.RecordBatch | None = None) -> pa.RecordBatch | None:
        """All that is held, and ``more`` behind it, as one batch; None if that is nothing."""
        batches = self._batches if more is None else [*self._batches, more]
        self._batches, self._bytes, self.rows = [], 0, 0
        return pa.concat_batches(batches) if len(batches) > 1 else next(iter(batches), None)
