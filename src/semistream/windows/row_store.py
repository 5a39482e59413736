"""RowStore: the columns of the tuples in memory, of one stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from semistream.kernels.types import Int32s, Int64s
from semistream.kernels.window_memory import ARRIVAL, CLASS, ORIGIN

COPIES = 3
"""Times the bytes of its rows that a store takes at most: as much again in rows that have left, and as much while they
are sorted out."""

_SLACK_ROWS = 1024


class _Tier:
    """Rows that were stored together: number ``first + i`` is row ``i`` of the batch, and was put into ``slots[i]``."""

    def __init__(self, first: int, batch: pa.RecordBatch, slots: Int32s) -> None:
        self.first = first
        self.batch = batch
        self.slots = slots

    @property
    def numbers(self) -> Int64s:
        return np.arange(self.first, self.first + self.slots.size)


class RowStore:
    """Rows in tiers of falling sizes, each at least twice the next, by numbers that their slots keep as origins.

    A row is gone when its slot has another origin. Tiers that have come to be of like size are merged, and all of them
    when half of the rows are gone: a row is copied a few times in its life, and rows that are gone take no more memory
    than those that are there.
    """

    def __init__(self, schema: pa.Schema, side: int) -> None:
        self._schema = schema
        self._side = side
        self._tiers: list[_Tier] = []
        self._next = 0

    @property
    def rows(self) -> int:
        """Rows that are kept, with those that are gone."""
        return sum(tier.slots.size for tier in self._tiers)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are kept."""
        return sum(tier.batch.nbytes + tier.slots.nbytes for tier in self._tiers)

    def add(self, batch: pa.RecordBatch, slots: Int32s, records: Int64s, links: Int32s, live: int) -> None:
        """Store the rows of tuples that are in these slots; ``live`` is how many tuples of the side are in memory."""
        if batch.num_rows:
            self._append(batch, slots, records)
        if self.rows > 2 * live + _SLACK_ROWS:
            self._merge(0, records, links)
        while len(self._tiers) > 1 and 2 * self._tiers[-1].slots.size > self._tiers[-2].slots.size:
            self._merge(len(self._tiers) - 2, records, links)

    def relocate(self, records: Int64s, links: Int32s) -> None:
        """Tuples have moved to other slots, with their origins."""
        slots = np.flatnonzero((records[:, ARRIVAL] >= 0) & ((links[:, CLASS] & 1) == self._side)).astype(np.int32)
        origins = records[slots, ORIGIN]
        for tier in self._tiers:
            here = (origins >= tier.first) & (origins < tier.first + tier.slots.size)
            tier.slots = np.zeros_like(tier.slots)  # of rows that are gone: a slot that has another origin
            tier.slots[origins[here] - tier.first] = slots[here]

    def gather(self, origins: Int64s, arriving: pa.RecordBatch, columns: Sequence[str]) -> list[pa.Array]:
        """Columns of rows by their origins: numbers of stored rows, or ``~i`` for row ``i`` of ``arriving``."""
        sources = [tier.batch for tier in self._tiers]
        firsts = np.array([tier.first for tier in self._tiers], np.int64)
        source = np.searchsorted(firsts, origins, side="right") - 1  # -1 is what arrives
        rows = origins - firsts[source] if firsts.size else origins.copy()
        new = origins < 0
        rows[new] = ~origins[new]
        present = np.flatnonzero(np.bincount(source + 1, minlength=len(sources) + 1)) - 1
        if present.size <= 1:
            batch = arriving if present.size == 0 or present[0] < 0 else sources[present[0]]
            at = pa.array(rows)
            return [batch.column(name).take(at) for name in columns]
        source = source.astype(np.int16)  # tiers are few, and numbers of 16 bits are sorted by radix
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
        """Make one tier of those from ``begin`` on, of the rows that are not gone."""
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
