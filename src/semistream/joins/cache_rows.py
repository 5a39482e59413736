"""Rows on their way into a tuple cache or out of it, and the choice of those that it keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.kernels.types import Bools, Int32s, Int64s

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class CacheRows:
    """Rows, those of a key one behind the other, and how often each row's key was asked for."""

    batch: pa.RecordBatch  # a column of codes, then the cached columns
    frequency: Int32s

    @property
    def codes(self) -> Int64s:
        """The rows' key codes."""
        codes: Int64s = self.batch.column(0).to_numpy()
        return codes

    def filter(self, kept: Bools) -> CacheRows:
        """Some of the rows."""
        return self if kept.all() else CacheRows(self.batch.filter(pa.array(kept)), self.frequency[kept])

    def slice(self, begin: int, end: int) -> CacheRows:
        """The rows from ``begin`` to before ``end``, in the same memory."""
        return CacheRows(self.batch.slice(begin, end - begin), self.frequency[begin:end])

    @classmethod
    def concat(cls, parts: list[CacheRows]) -> CacheRows:
        """Rows of several parts, one behind the other."""
        if len(parts) == 1:
            return parts[0]
        batch = pa.concat_batches([part.batch for part in parts])
        return cls(batch, np.concatenate([part.frequency for part in parts]))


def hottest(held: tuple[Int32s, Int64s], new: tuple[Int32s, Int64s], most: int) -> tuple[Bools, Bools, int]:
    """Which rows to keep, up to ``most`` of those held and of new ones, by (frequency, codes) of each.

    Rows of one key have one frequency, and are kept together or not at all. Gives also the frequency below which
    nothing is kept. Many keys may be asked for just so often: old ones stay before new ones come, and among equals a
    lot decides, always the same.
    """
    every = np.concatenate([held[0], new[0]])
    cut = int(np.partition(every, every.size - most)[every.size - most]) if most > 0 else int(every.max()) + 1
    spare = most - int(np.count_nonzero(every > cut))
    kept = _from_cut(*held, cut, spare)
    kept_new = _from_cut(*new, cut, spare - int(np.count_nonzero(held[0] == cut)))
    return kept, kept_new, cut


def _from_cut(frequency: Int32s, codes: Int64s, cut: int, spare: int) -> Bools:
    """Rows asked for more often than ``cut``, and up to ``spare`` of those just so often."""
    kept: Bools = frequency > cut
    at_cut = np.flatnonzero(frequency == cut)
    if at_cut.size > max(spare, 0):
        at_cut = at_cut[_drawn(codes[at_cut], max(spare, 0))]
    kept[at_cut] = True
    return kept


def _drawn(codes: Int64s, rows: int) -> Bools:
    """Which rows win if so many may, of more: each key draws a lot, for all its rows; one with too many loses."""
    lots = codes.view(np.uint64) * _GOLDEN
    won: Bools = lots < np.partition(lots, rows)[rows]
    return won
