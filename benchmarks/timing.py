"""How rates are taken: of a stream that goes on, or of batches that are drained one by one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from semistream import Relation, SemiStreamJoin, join

_COLD_SHARE = 4  # one part in so many of a stream is not timed,
_COLD_S, _TIMED_S = 5.0, 15.0  # and what a slow join takes of it ends after so long


def stream_rate(r: Relation, stream: list[pa.RecordBatch], memory: int, *, columns: list[str] | None = None) -> float:
    """Rows/s of `semistream.join`, ``operator="auto"``: the first quarter is not timed, the flush at the end is.

    A slow join is not given all of the stream: the parts end after ``_COLD_S`` and ``_TIMED_S`` at the latest.
    """
    timed = _TimedStream(stream)
    joined = join(timed.batches(), r, on="key", operator="auto", memory=memory, columns=columns)
    results = sum(batch.num_rows for batch in joined)
    taken = time.perf_counter() - timed.began
    _require_all(results, timed.rows)
    return timed.timed_rows / taken


class _TimedStream:
    """Gives out a stream and notes when its timed part began, and the rows of it."""

    def __init__(self, stream: list[pa.RecordBatch]) -> None:
        self._stream = stream
        self.began = math.inf
        self.rows = self.timed_rows = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        start = time.perf_counter()
        for number, batch in enumerate(self._stream):
            now = time.perf_counter()
            if now > self.began + _TIMED_S:
                return
            if number >= len(self._stream) // _COLD_SHARE or (number and now > start + _COLD_S):
                self.began = min(self.began, now)
                self.timed_rows += batch.num_rows
            self.rows += batch.num_rows
            yield batch


def batch_rates(joined_rows: Callable[[pa.RecordBatch], int], stream: list[pa.RecordBatch]) -> list[float]:
    """Rows/s of each batch; the first one warms up."""
    rates = []
    for batch in stream:
        start = time.perf_counter()
        results = joined_rows(batch)
        rates.append(batch.num_rows / (time.perf_counter() - start))
        _require_all(results, batch.num_rows)
    return rates[1:]


def drained_rates(operator: SemiStreamJoin, stream: list[pa.RecordBatch]) -> list[float]:
    """Rows/s of each batch, pushed and flushed; the first one warms up."""

    def one(batch: pa.RecordBatch) -> int:
        pushed = sum(result.num_rows for result in operator.push(batch))
        return pushed + sum(result.num_rows for result in operator.flush())

    with operator:
        return batch_rates(one, stream)


def _require_all(results: int, rows: int) -> None:
    if results != rows:
        raise RuntimeError(f"{results} results for {rows} rows, each of which has one partner")
