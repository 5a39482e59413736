"""Bursty: a stream whose rate rises and falls on many time scales, as sales do over hours, weeks and seasons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count as count_up

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.datasets.zipf import Zipf, check_key_name, whole_number
from semistream.errors import InvalidArgument

MAX_STREAMS = 30
_OWN_COLUMNS = ("seq", "step")


class _OnOff:
    """Virtual stream that alternates between on and off, each time for a uniform time in [0, bandwidth) steps."""

    def __init__(self, bandwidth: int, rng: np.random.Generator) -> None:
        self.bandwidth = bandwidth
        self._rng = rng
        # Start in the equilibrium of the alternating renewal process: on and off are equally likely, and the rest of
        # the current period has distribution function 1 - (1 - x / b)**2 if periods are uniform on [0, b).
        self.on = bool(rng.random() < 0.5)
        self._ahead = np.array([bandwidth * (1.0 - math.sqrt(1.0 - rng.random()))])

    def is_due(self, last_step: int) -> bool:
        """True if the stream switches at least once up to and including ``last_step``."""
        return bool(self._ahead[0] <= last_step)

    def switches(self, last_step: int) -> npt.NDArray[np.float64]:
        """Return the times of the next switches up to and including ``last_step``, and advance past them."""
        while (latest := self._ahead[-1]) <= last_step:
            n = int(2.1 * (last_step - latest) / self.bandwidth) + 64
            # accumulate adds from left to right, so the switch times do not depend on how calls divide the time.
            times = np.add.accumulate(np.append(latest, self._rng.random(n) * self.bandwidth))
            self._ahead = np.append(self._ahead, times[1:])
        due = int(np.searchsorted(self._ahead, last_step, side="right"))
        now, self._ahead = self._ahead[:due], self._ahead[due:]
        return now


class Bursty:
    """Bursty, self-similar stream of HYBRID's benchmark: N on/off streams of bandwidth 2, 4, ..., 2**N.

    Virtual stream i delivers ``2**i * rows_per_unit`` rows in every time step while it is on. Each of its on and off
    periods lasts a uniform random time below ``2**i`` steps. The rows of a step are the sum over the streams that are
    on: ``mean_rows_per_step`` on average, and at most twice that.

    Arrivals are stationary. With the same seed they are the same however calls divide the steps. They are
    self-similar (Hurst parameter near 1) over scales up to about a quarter of 2**N steps, the longest period of the
    slowest stream, and have no memory beyond that. Raise ``streams`` for longer memory, and observe many times 2**N
    steps to see the mean.

    Parameters
    ----------
    values : Zipf
        Source of the keys, read from its current position. The paper uses ``Zipf(1.0, domain)``.
    streams : int
        Number of virtual streams, from 1 to 30; the paper's N, 10.
    seed : int
        Seed of the arrivals.
    rows_per_unit : int
        Rows per step for one unit of bandwidth.

    Examples
    --------
    >>> stream = Bursty(Zipf(1.0, 10**6), streams=4, seed=1)
    >>> stream.arrivals(12).tolist()
    [28, 22, 16, 20, 26, 24, 30, 24, 26, 26, 0, 4]
    >>> [batch.num_rows for batch in stream.micro_batches(total_rows=1000, mean_rows=200)]
    [26, 80, 80, 187, 133, 134, 293, 67]

    Notes
    -----
    This class departs from the pseudo-code of HYBRID, Figure 9, in five points:

    - Figure 9 has one ``on`` flag for all objects, and so subtracts bandwidths it never added. Here each object has
      its own flag.
    - SWAPSTATUS stores the new time in a variable instead of the object, so the order of the queue never changes.
      Here the object stores it.
    - Figure 9 switches at most one object per step, tests the time of the previous object, and loses an object in
      line 8. Here every due object switches, as often as it is due.
    - All objects are due at the start, so every run opens with the same burst. Here each object starts in the
      equilibrium of its process.
    - Lines 28 to 31 round a continuous 1/x variate. Rounded down, P(k) ~ log(1 + 1/k), so the first key appears about
      0.7 times as often as Zipf's law says. Here keys follow `Zipf` exactly.

    The streams are independent, so no priority queue is needed: each lists its own switches, and the running sum over
    all switches is the bandwidth.

    References
    ----------
    HYBRID, Appendix, Figures 9 to 11.
    """

    def __init__(self, values: Zipf, *, streams: int = 10, seed: int = 0, rows_per_unit: int = 1) -> None:
        if not isinstance(values, Zipf):
            raise InvalidArgument(f"values is {values!r}; give a Zipf stream, such as Zipf(1.0, 10**6).")
        self.values = values
        self.streams = whole_number("streams", streams, least=1, most=MAX_STREAMS)
        self.seed = whole_number("seed", seed, least=0)
        self.rows_per_unit = whole_number("rows_per_unit", rows_per_unit, least=1, most=2**30)
        children = np.random.SeedSequence(self.seed).spawn(self.streams)
        self._on_off = [_OnOff(2**i, np.random.default_rng(child)) for i, child in enumerate(children, start=1)]
        self._step = 0

    @property
    def step(self) -> int:
        """Number of the next time step, from 0."""
        return self._step

    @property
    def mean_rows_per_step(self) -> int:
        """Expected rows in a step; each stream is on half of the time."""
        return ((1 << self.streams) - 1) * self.rows_per_unit

    def arrivals(self, steps: int) -> npt.NDArray[np.int64]:
        """Return the number of rows that arrive in each of the next ``steps`` time steps, and advance past them."""
        steps = whole_number("steps", steps, least=0)
        change = np.zeros(steps, dtype=np.int64)
        if steps == 0:
            return change
        for stream in self._on_off:
            change[0] += stream.bandwidth * stream.on
            if not stream.is_due(self._step + steps - 1):
                continue  # the common case in short calls
            times = stream.switches(self._step + steps - 1)
            turns = np.full(times.size, stream.bandwidth, dtype=np.int64)
            turns[int(not stream.on) :: 2] *= -1
            # A switch between two steps takes effect at the later one. Several may share that step, hence add.at.
            np.add.at(change, np.ceil(times).astype(np.int64) - self._step, turns)
            stream.on ^= bool(times.size % 2)
        self._step += steps
        np.add.accumulate(change, out=change)
        change *= self.rows_per_unit
        return change

    def batches(
        self, steps_per_batch: int = 1, count: int | None = None, *, name: str = "key"
    ) -> Iterator[pa.RecordBatch]:
        """Return batches of the rows that arrive in ``steps_per_batch`` steps each.

        Columns are the key (``name``), the row's position ``seq`` and its ``step``. A batch is empty if no row
        arrives in its steps. Yields ``count`` batches, or never ends if ``count`` is None.
        """
        steps = whole_number("steps_per_batch", steps_per_batch, least=1)
        numbers = count_up() if count is None else range(whole_number("count", count, least=0))
        check_key_name(name, taken=_OWN_COLUMNS)
        return (self._batch(self._step, self.arrivals(steps), name) for _ in numbers)

    def micro_batches(
        self, total_rows: int, mean_rows: int, *, steps_per_batch: int = 1, name: str = "key"
    ) -> Iterator[pa.RecordBatch]:
        """Return batches proportional to the arrivals: ``mean_rows`` rows on average, ``total_rows`` in total.

        Columns as in `batches`. Rows add up to ``total_rows`` exactly: fractions of a row carry over to the next
        batch, and the last batch is cut short. Empty batches are skipped. ``mean_rows`` is the mean of the whole
        process. A run much shorter than ``2**streams`` steps stays near the level of its slowest streams, so use
        fewer streams, or more ``steps_per_batch``, for a short demonstration.
        """
        total = whole_number("total_rows", total_rows, least=0)
        mean = whole_number("mean_rows", mean_rows, least=1)
        steps = whole_number("steps_per_batch", steps_per_batch, least=1)
        check_key_name(name, taken=_OWN_COLUMNS)
        return self._scaled(total, mean / (self.mean_rows_per_step * steps), steps, name)

    def __repr__(self) -> str:
        return f"Bursty({self.values!r}, streams={self.streams}, seed={self.seed}, rows_per_unit={self.rows_per_unit})"

    def _scaled(self, total: int, factor: float, steps: int, name: str) -> Iterator[pa.RecordBatch]:
        arrived, sent = 0, 0
        while sent < total:
            first_step = self._step
            so_far = arrived + np.add.accumulate(self.arrivals(steps))
            arrived = int(so_far[-1])
            # Round the running sum instead of each size, so that rounding errors never add up.
            due = np.minimum(np.floor(so_far * factor).astype(np.int64), total)
            sizes = np.diff(due, prepend=sent)
            sent = int(due[-1])
            if sizes.any():
                yield self._batch(first_step, sizes, name)

    def _batch(self, first_step: int, sizes: npt.NDArray[np.int64], name: str) -> pa.RecordBatch:
        """Return one batch with ``sizes[i]`` rows of step ``first_step + i``."""
        rows, seq = int(sizes.sum()), self.values.position
        steps = np.arange(first_step, first_step + sizes.size, dtype=np.int64)
        return pa.record_batch(
            {
                name: self.values.keys(rows),
                "seq": np.arange(seq, seq + rows, dtype=np.int64),
                "step": np.repeat(steps, sizes),
            }
        )
