"""Arrivals: tuples that wait until their instant is complete, and their merge in time order for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.array_types import Floats, Int32s, Int64s
from semistream.keys.plain_types import empty_batch
from semistream.windows.kernels.held_rows import WindowRows
from semistream.windows.streams.event_time import LAST_INSTANT, in_order, running_maximum
from semistream.windows.streams.window_match import RowCodes

BEGINNING = -(2**63)
"""Watermark of a stream without any rows: earlier than all instants."""

_COPY_BELOW = 4  # copy the rest of a batch if it is less than a quarter of its rows


@dataclass(frozen=True)
class ReadyRows:
    """Tuples of one stream in time order; tuples of equal time keep the order in which they were pushed."""

    batch: pa.RecordBatch
    times: Int64s

    def taken(self, numbers: Int64s) -> ReadyRows:
        """Return the rows with these numbers."""
        return ReadyRows(self.batch.take(pa.array(numbers)), self.times[numbers])

    def followed_by(self, others: ReadyRows) -> ReadyRows:
        """Return these rows followed by ``others``, which must not be earlier."""
        if not self.times.size or not others.times.size:
            return self if self.times.size else others
        return ReadyRows(pa.concat_batches([self.batch, others.batch]), np.concatenate([self.times, others.times]))


def no_rows(schema: pa.Schema) -> ReadyRows:
    """Return zero rows with this schema."""
    return ReadyRows(empty_batch(schema), np.empty(0, np.int64))


class Arrivals:
    """Buffer that takes rows in any order, rejects late ones, and returns the others in time order.

    ``watermark`` is the time before which no more rows are expected: the largest time seen less ``lateness`` (None:
    rows imply nothing), or the time given to `advance` if that is later. A row is late if its time is before the
    watermark set by the rows before it. This depends only on the stream, not on how it is cut into batches or on the
    other stream. If ``numbered``, times are the positions of the rows in the stream, and no row is late; `advance`
    then skips positions.
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
        self._least = LAST_INSTANT + 1  # smallest waiting time
        self._in_order = False

    @property
    def watermark(self) -> int:
        """Time before which all rows have come."""
        if self.numbered:
            return self.next_number
        if self.lateness is None or self.greatest == BEGINNING:
            return self.told
        return max(self.greatest - self.lateness, self.told)

    def advance(self, instant: int) -> None:
        """Declare that no more rows come before this time."""
        self.told = max(self.told, instant)
        self.next_number = max(self.next_number, instant)

    def take(self, batch: pa.RecordBatch, times: Int64s | None) -> pa.RecordBatch:
        """Buffer the rows of a batch and return the late ones. ``times`` is None if rows are numbered."""
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
        """Remove and return the rows with times before ``frontier``."""
        if frontier <= self._least:
            return no_rows(self.schema)
        batch, times = self._batches[0], self._times[0]
        if len(self._batches) > 1:  # a single remainder of the previous call is in order
            batch, times = pa.concat_batches(self._batches), np.concatenate(self._times)
        if not (self._in_order and len(self._batches) == 1) and not in_order(times):
            order = np.argsort(times, kind="stable")
            batch, times = batch.take(pa.array(order)), times[order]
        cut = int(np.searchsorted(times, frontier))
        rest, rest_times = batch.slice(cut), times[cut:]
        if rest.num_rows * _COPY_BELOW < batch.num_rows:  # release the batch it was a slice of
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
        """Return the waiting rows in buffer order."""
        if not self._batches:
            return no_rows(self.schema)
        return ReadyRows(pa.concat_batches(self._batches), np.concatenate(self._times))

    def hold(self, rows: ReadyRows) -> None:
        """Buffer rows returned by `held`."""
        self._keep(rows.batch, rows.times)


Scalar = TypeVar("Scalar", bound=np.generic)


def merge_rows(
    times: Sequence[Int64s],
    codes: Sequence[RowCodes],
    classes: Sequence[Int32s | None],
    weights: Sequence[Floats | None],
    costs: Sequence[Int32s | None],
    queued: int | None = None,
) -> WindowRows:
    """Merge the rows of the left and the right stream by (time, side, position); each side must be in time order.

    With a queue, the first ``queued`` rows are in it.
    """
    sizes = [side.size for side in times]
    all_times = np.concatenate(times)
    # A stable sort merges two sorted runs in one pass.
    order = np.argsort(all_times, kind="stable") if all(sizes) else None

    def merged(parts: Sequence[npt.NDArray[Scalar] | None], empty: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        given = [part for part in parts if part is not None]
        joined = np.concatenate(given) if given else empty
        return joined if order is None or not joined.size else joined[order]

    numbers = np.empty(0, np.int64)
    possible = [np.ones(n, np.bool_) if c.possible is None else c.possible for n, c in zip(sizes, codes, strict=True)]
    return WindowRows(
        side=merged([np.zeros(sizes[0], np.uint8), np.ones(sizes[1], np.uint8)], np.empty(0, np.uint8)),
        time=all_times if order is None else all_times[order],
        number=merged([np.arange(sizes[0]), np.arange(sizes[1])], numbers),
        code=merged([c.code for c in codes], numbers),
        possible=merged(possible if any(c.possible is not None for c in codes) else [], np.empty(0, np.bool_)),
        cell=merged([c.cell for c in codes], numbers),
        first_cell=merged([c.first_cell for c in codes], numbers),
        last_cell=merged([c.last_cell for c in codes], numbers),
        low=merged([c.low for c in codes], numbers),
        high=merged([c.high for c in codes], numbers),
        class_=merged(classes, np.empty(0, np.int32)),
        weight=merged(weights, np.empty(0)),
        cost=merged(costs, np.empty(0, np.int32)),
        queued=np.empty(0, np.bool_) if queued is None else np.arange(all_times.size) < queued,
    )


def largest_instant(times: Int64s) -> int:
    """Return the largest number of tuples at one instant; times must be in order.

    >>> largest_instant(np.array([1, 1, 1, 2, 5, 5]))
    3
    """
    if not times.size:
        return 0
    ends = np.flatnonzero(np.append(times[1:] != times[:-1], True))
    return int(np.diff(ends, prepend=-1).max())
