"""Sources of the probabilities that policies use (WINDOW 4.2): given, computed, or learnt from the past."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.datasets.zipf import whole_number
from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Floats, Int64s
from semistream.kernels.search import positions_of
from semistream.windows.streams.event_time import SIDES, Side
from semistream.windows.streams.window_match import RowCodes, WindowMatch

FREQUENCY_COLUMN = "frequency"
"""Name of the frequency column in a table of frequencies; the other columns are keys."""


class Probabilities:
    """Source of the probability that a tuple of a stream has a given key: p_R and p_S of WINDOW 4.2.1."""


@dataclass(frozen=True)
class LearntProbabilities(Probabilities):
    """Probabilities learnt from past arrivals, by a sketch of each stream's key frequencies in which old counts decay.

    The sketch is charged to the memory. A tuple's probability is looked up on arrival, and again for all tuples in
    memory every ``refresh`` tuples, so it is never older than that. All intervals count tuples, not batches. A key
    not seen recently has probability 0; among tuples with such keys the youngest stay. In a band join the sketch
    counts cells, and a tuple keeps the probability it had on arrival.

    Parameters
    ----------
    half_life : int, optional
        Tuples (of both streams) after which a count has lost half its weight. Default: 4 times the capacity in tuples,
        at least 256.
    refresh : int, optional
        Tuples between two look-ups for the tuples in memory. Default: a quarter of the half-life.
    width : int, optional
        Counters in each of the two rows of a stream's sketch, a power of two. Default: one for every four tuples of
        capacity, at least 64.

    Examples
    --------
    >>> LearntProbabilities(half_life=1000).sized(capacity=500)  # half-life, refresh, width
    (1000, 250, 128)

    References
    ----------
    WINDOW 4.2, which estimates probabilities from past arrivals. docs/windows.md.
    """

    half_life: int | None = None
    refresh: int | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        for name in ("half_life", "refresh", "width"):
            value = getattr(self, name)
            if value is not None:
                whole_number(name, value, least=1)
        if self.width is not None and self.width & (self.width - 1):
            raise InvalidArgument(
                f"width is {self.width}; give a power of two, such as {1 << self.width.bit_length()}."
            )

    def sized(self, capacity: int) -> tuple[int, int, int]:
        """Return half-life, refresh and width for a memory of ``capacity`` tuples."""
        half_life = self.half_life or max(4 * capacity, 256)
        refresh = self.refresh or max(half_life // 4, 1)
        width = self.width or max(64, 1 << max(capacity // 4 - 1, 0).bit_length())
        return half_life, refresh, width


@dataclass(frozen=True)
class ComputedProbabilities(Probabilities):
    """Probabilities computed by a user function.

    This is the only source for predicates other than equality and bands.

    Parameters
    ----------
    function : callable
        ``function(side, batch)`` returns, for each tuple of a batch of the stream ``side`` ("left" or "right"), the
        probability that a tuple of the other stream is its partner.

    Examples
    --------
    >>> from semistream.windows import Prob, WindowJoin
    >>> def chance(side, batch):  # of a pair with x > x_right, if x is uniform from 0 to 1
    ...     return batch["x"].to_numpy() if side == "left" else 1 - batch["x"].to_numpy()
    >>> stream, batch = pa.schema([("x", pa.float64())]), pa.record_batch({"x": [0.9, 0.1, 0.5, 0.2, 0.7]})
    >>> above = pc.field("x") > pc.field("x_right")
    >>> policy = Prob(ComputedProbabilities(chance))
    >>> join = WindowJoin(stream, stream, where=above, window=5, memory=2, policy=policy)  # exact: 10 results
    >>> sum(b.num_rows for b in [*join.push_left(batch), *join.push_right(batch), *join.finish()])
    7

    References
    ----------
    WINDOW 4.2, 6.2 (other join operators).
    """

    function: Callable[[Side, pa.RecordBatch], Any]

    def of_rows(self, side: int, batch: pa.RecordBatch) -> Floats:
        """Return the probabilities of a batch, after checking their shape and values."""
        values = np.asarray(self.function(SIDES[side], batch), np.float64)
        if values.shape != (batch.num_rows,) or np.isnan(values).any():
            raise InvalidArgument(
                f"the probabilities of {batch.num_rows} tuples of the {SIDES[side]} stream have shape {values.shape}"
                f"{' and contain NaN' if np.isnan(values).any() else ''}; give one number for each tuple."
            )
        return values


@dataclass(frozen=True, eq=False)
class GivenProbabilities(Probabilities):
    """Probabilities given per key, one table for each stream.

    Only ratios matter. A key missing from its table has probability 0. If one stream brings more tuples than the
    other, give arrivals per instant instead of probabilities, as `of_streams` does.

    Parameters
    ----------
    left, right : pyarrow.Table
        The key columns of the stream, and the column ``frequency`` with a number of at least 0 for each key.

    Examples
    --------
    >>> stream = pa.table({"k": [1, 1, 2]})
    >>> GivenProbabilities.of_streams(stream, stream, on="k").left.to_pydict()
    {'k': [1, 2], 'frequency': [0.666..., 0.333...]}

    References
    ----------
    WINDOW 4.2.1: p_R and p_S. 5.2 sets them to the frequencies of the whole streams.
    """

    left: pa.Table
    right: pa.Table

    def __post_init__(self) -> None:
        for side, table in zip(SIDES, (self.left, self.right), strict=True):
            if FREQUENCY_COLUMN not in table.column_names:
                raise ColumnNotFound(FREQUENCY_COLUMN, table.column_names, where=f"the {side} probabilities")
            values = table.column(FREQUENCY_COLUMN).cast(pa.float64())
            least = pc.min(values).as_py()
            if values.null_count or pc.any(pc.is_nan(values)).as_py() or (least is not None and least < 0):
                raise InvalidArgument(
                    f"{FREQUENCY_COLUMN!r} of the {side} probabilities has nulls, NaN or numbers below 0; "
                    "give the frequency of each key."
                )

    @classmethod
    def of_streams(
        cls, left: pa.Table, right: pa.Table, *, on: str | Sequence[str] | Mapping[str, str]
    ) -> GivenProbabilities:
        """Return the frequencies of the whole streams, as in the paper's experiments (WINDOW 5.2).

        A frequency is the number of tuples with a key, divided by the length of the longer stream. ``on`` names the
        columns that the join compares, by equality or by a band.
        """
        pairs = {on: on} if isinstance(on, str) else dict(on) if isinstance(on, Mapping) else {n: n for n in on}
        most = max(left.num_rows, right.num_rows, 1)
        return cls(_frequencies(left, list(pairs), most), _frequencies(right, list(pairs.values()), most))

    def bind(self, condition: WindowMatch) -> tuple[_Frequencies, _Frequencies]:
        """Return the frequencies by code, of the left and of the right stream."""
        return _Frequencies.of(self.left, condition, 0), _Frequencies.of(self.right, condition, 1)


class _Frequencies:
    """Frequencies of one stream's keys, by code in ascending order."""

    def __init__(self, codes: Int64s, frequency: Floats) -> None:
        self.codes = codes
        self.frequency = frequency
        self._before = np.concatenate([[0.0], np.cumsum(frequency)])

    @classmethod
    def of(cls, table: pa.Table, condition: WindowMatch, side: int) -> _Frequencies:
        names = condition.keys[side] or ((condition.band_sides[side].column,) if condition.band_sides else ())
        if not names:
            raise InvalidArgument(
                "probabilities of keys need a join by equality or by a band; for other predicates give "
                "ComputedProbabilities."
            )
        for name in names:
            if name not in table.column_names:
                raise ColumnNotFound(name, table.column_names, where=f"the {SIDES[side]} probabilities")
        batch = table.combine_chunks().to_batches()
        if not batch:
            return cls(np.empty(0, np.int64), np.empty(0))
        rows = condition.codes(side, batch[0])
        frequency = batch[0].column(FREQUENCY_COLUMN).cast(pa.float64()).to_numpy()
        code = rows.code
        if rows.possible is not None:
            code, frequency = code[rows.possible], frequency[rows.possible]
        distinct, at = np.unique(code, return_inverse=True)
        return cls(distinct, np.bincount(at, weights=frequency, minlength=distinct.size).astype(np.float64))

    def near(self, rows: RowCodes) -> Floats:
        """Return the frequency of partners for each of these tuples of the other stream."""
        if rows.cell.size or not rows.code.size:
            begin = np.searchsorted(self.codes, rows.low)
            end = np.searchsorted(self.codes, rows.high, side="right")
            return np.asarray(self._before[np.maximum(end, begin)] - self._before[begin])
        present, at = positions_of(rows.code, self.codes)
        values = np.zeros(rows.code.size)
        values[present] = self.frequency[at[present]]
        return values


def _frequencies(stream: pa.Table, names: list[str], rows: int) -> pa.Table:
    for name in names:
        if name not in stream.column_names:
            raise ColumnNotFound(name, stream.column_names, where="the stream")
    counted = stream.select(names).group_by(names, use_threads=False).aggregate([([], "count_all")])
    share = pc.divide(pc.cast(counted.column("count_all"), pa.float64()), float(rows))
    return counted.drop_columns(["count_all"]).append_column(FREQUENCY_COLUMN, share)
