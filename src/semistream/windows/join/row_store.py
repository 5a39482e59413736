"""RowStore: the columns of one stream's tuples in memory, and the size of each row in bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_a

from semistream.kernels.array_types import Int32s, Int64s
from semistream.windows.kernels.held_rows import ARRIVAL, CLASS, ORIGIN

COPIES = 3
"""Largest memory of a store, in multiples of its live rows: live rows, as many dead ones, and a copy during a merge."""

_SLACK_ROWS = 1024


class _Tier:
    """Rows stored together: row ``i`` of the batch has number ``first + i`` and was put into ``slots[i]``."""

    def __init__(self, first: int, batch: pa.RecordBatch, slots: Int32s) -> None:
        self.first = first
        self.batch = batch
        self.slots = slots

    @property
    def numbers(self) -> Int64s:
        return np.arange(self.first, self.first + self.slots.size)


class RowStore:
    """Rows in tiers of decreasing size, each at least twice the next. Slots refer to rows by number, as their origins.

    A row is dead when its slot has another origin. Tiers of similar size are merged, and all tiers are merged when
    half of the rows are dead. A row is therefore copied only a few times in its life, and dead rows never take more
    memory than live ones.
    """

    def __init__(self, side: int) -> None:
        self._side = side
        self._tiers: list[_Tier] = []
        self._next = 0

    @property
    def rows(self) -> int:
        """Rows held, dead ones included."""
        return sum(tier.slots.size for tier in self._tiers)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held."""
        return sum(tier.batch.nbytes + tier.slots.nbytes for tier in self._tiers)

    def add(self, batch: pa.RecordBatch, slots: Int32s, records: Int64s, links: Int32s, live: int) -> None:
        """Store the rows of the tuples in these slots; ``live`` is the number of the side's tuples in memory."""
        if batch.num_rows:
            self._append(batch, slots, records)
        if self.rows > 2 * live + _SLACK_ROWS:
            self._merge(0, records, links)
        while len(self._tiers) > 1 and 2 * self._tiers[-1].slots.size > self._tiers[-2].slots.size:
            self._merge(len(self._tiers) - 2, records, links)

    def relocate(self, records: Int64s, links: Int32s) -> None:
        """Update the slots after tuples have moved to other slots, with their origins."""
        slots = np.flatnonzero((records[:, ARRIVAL] >= 0) & ((links[:, CLASS] & 1) == self._side)).astype(np.int32)
        origins = records[slots, ORIGIN]
        for tier in self._tiers:
            here = (origins >= tier.first) & (origins < tier.first + tier.slots.size)
            tier.slots = np.zeros_like(tier.slots)  # dead rows point to a slot with another origin
            tier.slots[origins[here] - tier.first] = slots[here]

    def gather(self, origins: Int64s, arriving: pa.RecordBatch, columns: Sequence[str]) -> list[pa.Array]:
        """Return columns of rows by origin: the number of a stored row, or ``~i`` for row ``i`` of ``arriving``."""
        sources = [tier.batch for tier in self._tiers]
        firsts = np.array([tier.first for tier in self._tiers], np.int64)
        source = np.searchsorted(firsts, origins, side="right") - 1  # -1 means arriving
        rows = origins - firsts[source] if firsts.size else origins.copy()
        new = origins < 0
        rows[new] = ~origins[new]
        present = np.flatnonzero(np.bincount(source + 1, minlength=len(sources) + 1)) - 1
        if present.size <= 1:
            batch = arriving if present.size == 0 or present[0] < 0 else sources[present[0]]
            at = pa.array(rows)
            return [batch.column(name).take(at) for name in columns]
        source = source.astype(np.int16)  # tiers are few, and 16-bit numbers are sorted by radix
        order = np.argsort(source, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        cuts = np.searchsorted(source[order], present)
        pieces = np.split(rows[order], cuts[1:])
        batches = [arriving if number < 0 else sources[number] for number in present]
        gathered = []
        for name in columns:
            parts = [b.column(name).take(pa.array(piece)) for b, piece in zip(batches, pieces, strict=True)]
            gathered.append(pa.concat_arrays(parts).take(pa.array(back)))
        return gathered

    def _append(self, batch: pa.RecordBatch, slots: Int32s, records: Int64s) -> None:
        tier = _Tier(self._next, batch, slots)
        records[slots, ORIGIN] = tier.numbers
        self._next += slots.size
        self._tiers.append(tier)

    def _merge(self, begin: int, records: Int64s, links: Int32s) -> None:
        """Merge the tiers from ``begin`` on into one, dropping dead rows."""
        merged, self._tiers = self._tiers[begin:], self._tiers[:begin]
        batches, slots = [], []
        for tier in merged:
            here = (records[tier.slots, ORIGIN] == tier.numbers) & (records[tier.slots, ARRIVAL] >= 0)
            here &= (links[tier.slots, CLASS] & 1) == self._side
            slots.append(tier.slots[here])
            batches.append(tier.batch.take(pa.array(np.flatnonzero(here))))
        self._append(pa.concat_batches(batches), np.concatenate(slots), records)
        if not self._tiers[-1].slots.size:
            self._tiers.pop()


Sizes = npt.NDArray[np.int64]


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """Return the bytes of each row of plain types in Arrow's layout, independent of the batch it is in.

    >>> row_bytes(pa.record_batch({"k": pa.array([1, 2]), "s": ["a", "long"]})).tolist()
    [15, 18]
    """
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        total += _sizes(column)
    return total


def _sizes(array: pa.Array) -> Sizes | int:
    """Return the bytes of each value, including its offsets and its validity bit (counted as one byte)."""
    type_ = array.type
    if is_a.is_null(type_):
        return 1
    if is_a.is_boolean(type_):
        return 2
    if _is_text(type_):
        lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return 1 + _offset_bytes(type_) + np.asarray(lengths, np.int64)
    if is_a.is_struct(type_) or is_a.is_union(type_):  # a union's type code takes as much as a validity bit
        fields = [np.asarray(_sizes(array.field(i)), np.int64) for i in range(type_.num_fields)]
        return np.asarray(sum(fields, np.int64(1)), np.int64)
    if is_a.is_nested(type_):  # lists and maps: the size of their values
        if is_a.is_fixed_size_list(type_):
            ends = (array.offset + np.arange(len(array) + 1)) * type_.list_size
        else:
            ends = array.offsets.to_numpy().astype(np.int64)
        values = array.values.slice(ends[0], ends[-1] - ends[0])
        sizes = np.broadcast_to(np.asarray(_sizes(values), np.int64), len(values))
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        total: Sizes = 9 + np.diff(before[ends - ends[0]])
        return total
    return 1 + -(-int(type_.bit_width) // 8)


def _is_text(type_: pa.DataType) -> bool:
    small = is_a.is_string(type_) or is_a.is_binary(type_)
    return bool(small or is_a.is_large_string(type_) or is_a.is_large_binary(type_))


def _offset_bytes(type_: pa.DataType) -> int:
    return 8 if is_a.is_large_string(type_) or is_a.is_large_binary(type_) else 4
