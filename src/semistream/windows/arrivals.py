"""Arrivals: the tuples of one stream that wait until their instant is complete."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.kernels.types import Int64s
from semistream.windows.event_time import LAST_INSTANT, in_order, running_maximum

BEGINNING = -(2**63)
"""Before all instants: the watermark of a stream of which nothing is known."""

_COPY_BELOW = 4  # what is left of a batch is copied when it is less than one in so many of its rows


@dataclass(frozen=True)
class ReadyRows:
    """Tuples of one stream in the order of their times; those of one time in the order they were pushed in."""

    batch: pa.RecordBatch
    times: Int64s

    def taken(self, numbers: Int64s) -> ReadyRows:
        """Some of them."""
        return ReadyRows(self.batch.take(pa.array(numbers)), self.times[numbers])

    def followed_by(self, others: ReadyRows) -> ReadyRows:
        """These, and then others that are not earlier."""
        if not self.times.size or not others.times.size:
            return self if self.times.size else others
        return ReadyRows(pa.concat_batches([self.batch, others.batch]), np.concatenate([self.times, others.times]))


def no_rows(schema: pa.Schema) -> ReadyRows:
    """None at all."""
    arrays = [pa.array([], field.type) for field in schema]
    return ReadyRows(pa.RecordBatch.from_arrays(arrays, schema=schema), np.empty(0, np.int64))


class Arrivals:
    """Takes rows in any order, sorts out those that come too late, and gives out the others in the order of time.

    ``watermark`` is the time before which no more rows are expected: the greatest time seen less ``lateness``
    (None: nothing follows from the rows), or what `advance` was told, if that is greater. A row is late if its time is
    before the watermark that the rows before it have made: this depends on the stream alone, not on how it is cut into
    batches, nor on the other stream. If ``numbered``, times are the rows' positions in the stream, and none is late;
    what `advance` is told are positions that are left out.
    """

    def __init__(self, schema: pa.Schema, *, lateness: int | None, numbered: bool) -> None:
        self.schema = schema
        self.lateness = lateness
        self.numbered = numbered
        self.greatest = BEGINNING
        self.told = BEGINNING
        self.rows = 0
        self.next_number = 0
        self.waiting = 0
        self._batches: list[pa.RecordBatch] = []
        self._times: list[Int64s] = []
        self._least = LAST_INSTANT + 1  # of the times that wait
        self._in_order = False

    @property
    def watermark(self) -> int:
        """The time before which all rows have come."""
        if self.numbered:
            return self.next_number
        if self.lateness is None or self.greatest == BEGINNING:
            return self.told
        return max(self.greatest - self.lateness, self.told)

    def advance(self, instant: int) -> None:
        """No more rows come before this time."""
        self.told = max(self.told, instant)
        self.next_number = max(self.next_number, instant)

    def take(self, batch: pa.RecordBatch, times: Int64s | None) -> pa.RecordBatch:
        """Keep rows until they are ready; gives those that are late. ``times`` is None if rows are numbered."""
        if times is None:
            times = np.arange(self.next_number, self.next_number + batch.num_rows, dtype=np.int64)
            self.next_number += batch.num_rows
        late = batch.slice(0, 0)
        if not self.numbered and batch.num_rows:
            limit = np.full(times.size, self.told)
            if self.lateness is not None:
                before = running_maximum(times, max(self.greatest, -LAST_INSTANT))
                limit = np.maximum(limit, before - self.lateness)
            is_late = times < limit
            self.greatest = max(self.greatest, int(times.max()))
            if is_late.any():
                late = batch.filter(pa.array(is_late))
                batch, times = batch.filter(pa.array(~is_late)), times[~is_late]
        self.rows += batch.num_rows
        self._keep(batch, times)
        return late

    def ready(self, frontier: int) -> ReadyRows:
        """Take out the rows with times before ``frontier``."""
        if frontier <= self._least:
            return no_rows(self.schema)
        batch, times = self._batches[0], self._times[0]
        if len(self._batches) > 1:  # one that is left from the last time is in order
            batch, times = pa.concat_batches(self._batches), np.concatenate(self._times)
        if not (self._in_order and len(self._batches) == 1) and not in_order(times):
            order = np.argsort(times, kind="stable")
            batch, times = batch.take(pa.array(order)), times[order]
        cut = int(np.searchsorted(times, frontier))
        rest, rest_times = batch.slice(cut), times[cut:]
        if rest.num_rows * _COPY_BELOW < batch.num_rows:  # let go of the batch it was a part of
            rest, rest_times = rest.take(pa.array(np.arange(rest.num_rows))), rest_times.copy()
        self._batches, self._times, self._least, self.waiting = [], [], LAST_INSTANT + 1, 0
        self._keep(rest, rest_times)
        self._in_order = True
        return ReadyRows(batch.slice(0, cut), times[:cut])

    def _keep(self, batch: pa.RecordBatch, times: Int64s) -> None:
        if batch.num_rows:
            self._in_order = False
            self._batches.append(batch)
            self._times.append(times)
            self._least = min(self._least, int(times.min()))
            self.waiting += batch.num_rows

    def held(self) -> ReadyRows:
        """The rows that wait, in the order they are kept in."""
        if not self._batches:
            return no_rows(self.schema)
        return ReadyRows(pa.concat_batches(self._batches), np.concatenate(self._times))

    def hold(self, rows: ReadyRows) -> None:
        """Keep rows that `held` gave."""
        self._keep(rows.batch, rows.times)
