"""Measurement of rates: of a whole stream, or of batches drained one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from semistream import Relation, SemiStreamJoin, join

_TIMED_S = 12.0  # after this time, a slow join gets no more of the stream


def stream_rate(
    r: Relation, stream: list[pa.RecordBatch], memory: int, *, columns: list[str] | None = None, disk: str = "auto"
) -> float:
    """Return rows/s of `semistream.join` with ``operator="auto"``, from the first row to the last result."""
    timed = _TimedStream(stream)
    joined = join(timed.batches(), r, on="key", operator="auto", memory=memory, columns=columns, disk=disk)
    start = time.perf_counter()
    results = sum(batch.num_rows for batch in joined)
    taken = time.perf_counter() - start
    _require_all(results, timed.rows)
    return timed.rows / taken


class _TimedStream:
    """A stream that ends after a time limit, and counts its rows."""

    def __init__(self, stream: list[pa.RecordBatch]) -> None:
        self._stream = stream
        self.rows = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        start = time.perf_counter()
        for batch in self._stream:
            if time.perf_counter() > start + _TIMED_S:
                return
            self.rows += batch.num_rows
            yield batch


def batch_rates(
    joined_rows: Callable[[pa.RecordBatch], int],
    stream: list[pa.RecordBatch],
    before: Callable[[], object] = lambda: None,
) -> list[float]:
    """Return rows/s of each batch after the first, a warm-up. ``before`` is called before each, and not timed."""
    rates = []
    for batch in stream:
        before()
        start = time.perf_counter()
        results = joined_rows(batch)
        rates.append(batch.num_rows / (time.perf_counter() - start))
        _require_all(results, batch.num_rows)
    return rates[1:]


def drained_rates(operator: SemiStreamJoin, stream: list[pa.RecordBatch]) -> list[float]:
    """Return rows/s of each batch, pushed and flushed, after the first, a warm-up."""

    def one(batch: pa.RecordBatch) -> int:
        pushed = sum(result.num_rows for result in operator.push(batch))
        return pushed + sum(result.num_rows for result in operator.flush())

    with operator:
        return batch_rates(one, stream)


def _require_all(results: int, rows: int) -> None:
    if results != rows:
        raise RuntimeError(f"{results} results for {rows} rows with one match each")
