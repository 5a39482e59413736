"""TupleCache: the cache of a front stage, which holds rows of R by key, in memory, in pages like R's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.joins.cache.index import CacheIndex, CacheShape, ProbeRoom
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.kernels.page_cuts import cut_pages
from semistream.kernels.search import positions_of
from semistream.keys.plain_types import empty_batch
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.format.row_sizes import row_ends
from semistream.relation.read.disk import allocate_buffer

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class CacheRows:
    """Rows on their way into the cache or out of it, grouped by key, with the frequency of each row's key."""

    batch: pa.RecordBatch  # a column of codes, then the cached columns
    frequency: Int32s

    @property
    def codes(self) -> Int64s:
        """Key codes of the rows."""
        codes: Int64s = self.batch.column(0).to_numpy()
        return codes

    def filter(self, kept: Bools) -> CacheRows:
        """Return the flagged rows."""
        return self if kept.all() else CacheRows(self.batch.filter(pa.array(kept)), self.frequency[kept])

    def slice(self, begin: int, end: int) -> CacheRows:
        """Return the rows in [``begin``, ``end``), without a copy."""
        return CacheRows(self.batch.slice(begin, end - begin), self.frequency[begin:end])

    @classmethod
    def concat(cls, parts: list[CacheRows]) -> CacheRows:
        """Concatenate the rows of several parts."""
        if len(parts) == 1:
            return parts[0]
        batch = pa.concat_batches([part.batch for part in parts])
        return cls(batch, np.concatenate([part.frequency for part in parts]))


def hottest(held: tuple[Int32s, Int64s], new: tuple[Int32s, Int64s], most: int) -> tuple[Bools, Bools, int]:
    """Choose at most ``most`` rows to keep among the held and the new ones, given (frequency, codes) of each.

    Returns flags for the held rows, flags for the new rows, and the cut: rows with a lower frequency are not kept. Rows
    of a key have the same frequency and are kept together or not at all. At the cut, held keys win over new ones, and a
    hash of the code decides among the rest, so the choice is deterministic.
    """
    every = np.concatenate([held[0], new[0]])
    cut = int(np.partition(every, every.size - most)[every.size - most]) if most > 0 else int(every.max()) + 1
    spare = most - int(np.count_nonzero(every > cut))
    kept = _from_cut(*held, cut, spare)
    kept_new = _from_cut(*new, cut, spare - int(np.count_nonzero(held[0] == cut)))
    return kept, kept_new, cut


def _from_cut(frequency: Int32s, codes: Int64s, cut: int, spare: int) -> Bools:
    """Flag the rows with a frequency above ``cut``, and up to ``spare`` of those exactly at it."""
    kept: Bools = frequency > cut
    at_cut = np.flatnonzero(frequency == cut)
    if at_cut.size > max(spare, 0):
        at_cut = at_cut[_drawn(codes[at_cut], max(spare, 0))]
    kept[at_cut] = True
    return kept


def _drawn(codes: Int64s, rows: int) -> Bools:
    """Flag at most ``rows`` of the rows, keys with the lowest hash first; a key whose rows do not all fit gets none."""
    lots = codes.view(np.uint64) * _GOLDEN
    won: Bools = lots < np.partition(lots, rows)[rows]
    return won


_NEARLY = 0.9  # share of the room above which the cache counts as nearly full
_FULL = 0.97  # share of the room above which rows are evicted,
_REFILLED = 0.95  # down to this share
_GONE = -1  # frequency of a dropped row, which stays in its page until the next rewrite


@dataclass(frozen=True)
class _Page:
    """A written page: its frame, its number of rows, and the bytes of the rows and of the whole page."""

    frame: int
    rows: int
    row_bytes: int
    nbytes: int


@dataclass
class _Written:
    """Pages written so far, the frequencies of their rows, and the codes of rows that found no room."""

    pages: list[_Page] = field(default_factory=list)
    frequency: list[Int32s] = field(default_factory=list)
    lost: list[Int64s] = field(default_factory=list)


class TupleCache:
    """Cache of R's rows with their frequencies, in ``nbytes``: pages in R's own format, and an index by key code.

    The cache holds all rows of a key or none. Since pages have R's format, results are gathered as from R's own pages.
    New rows go to new pages. To make room, the cache rewrites the pages with the most cold rows, without these. Pages
    with only hot rows stay untouched, so the cost of admitting a row does not grow with the cache. Dropped rows leave
    the index at once, and their page when it is next rewritten.
    """

    def __init__(self, columns: Sequence[ColumnLayout], nbytes: int) -> None:
        self._shape = shape = CacheShape.of(columns, nbytes)
        self.layout = shape.layout
        self.columns = self.layout.columns[1:]
        self.frames = shape.frames
        self._frame, self._room = shape.frame_bytes, shape.room
        self._arena = allocate_buffer(max(self.frames, 1) * self._frame)
        self._index = CacheIndex(shape.index_bits, self.frames, shape.page_rows)
        self._free = list(range(self.frames))[::-1]
        self._no_rows = empty_batch(self.layout.schema)
        self._hold(_Written())

    def _hold(self, written: _Written) -> None:
        """Replace the contents of the cache by these pages."""
        self._pages = pages = written.pages
        rows = np.array([page.rows for page in pages], np.int32)
        nbytes = np.array([page.nbytes for page in pages], np.int64)
        starts = np.array([page.frame for page in pages], np.int64) * self._frame
        self.run = PageRun(self.layout, self._arena, np.arange(rows.size), starts[np.newaxis], rows, nbytes[np.newaxis])
        self._every = np.concatenate(written.frequency) if pages else np.empty(0, np.int32)
        self._first_row = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows, dtype=np.int64)])
        self._reindex()

    def _reindex(self) -> None:
        self._index.fill(self.run, self._first_row, self._every)
        self.rows = int(np.count_nonzero(self._alive))
        written = sum(page.row_bytes for page in self._pages)
        self.used_bytes = written * self.rows // max(self._every.size, 1)  # of the rows held: an estimate

    @property
    def _alive(self) -> Bools:
        alive: Bools = self._every != _GONE
        return alive

    @property
    def frequency(self) -> Int32s:
        """Frequencies of the rows held."""
        return self._every[self._alive]

    @property
    def fill(self) -> float:
        """Share of the room in use, from 0 to 1."""
        return self.used_bytes / (self.frames * self._filled(self.used_bytes, self.rows)) if self.frames else 1.0

    def _filled(self, nbytes: int, rows: int) -> int:
        """Return the bytes of a page that ``rows`` rows of ``nbytes`` in total fill on average."""
        return self._shape.filled(-(-nbytes // max(rows, 1)))

    @property
    def nearly_full(self) -> bool:
        """True if hardly any room is left."""
        return self.fill >= _NEARLY

    @property
    def codes(self) -> Int64s:
        """Codes of the rows held."""
        return self._codes()[self._alive]

    def _codes(self) -> Int64s:
        bounds = zip(self.run.code_starts.tolist(), self.run.rows.tolist(), strict=True)
        parts = [self.run.words[start : start + rows] for start, rows in bounds]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def holds(self, codes: Int64s) -> Bools:
        """Return a flag per code: True if its rows are cached."""
        return self._index.holds(codes)

    def probe(
        self, codes: Int64s, possible: Bools | None, room: ProbeRoom, begin: int = 0
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Yield pairs of a position in ``codes`` and a row of `run`, and collect the misses; see `CacheIndex.probe`."""
        return self._index.probe(codes, possible, room, begin)

    def everything(self) -> CacheRows:
        """Return copies of all rows."""
        return self._rows_of(range(len(self._pages)), self._alive)

    def age(self) -> None:
        """Halve all frequencies, so that formerly hot rows give way."""
        self._every >>= 1  # keeps _GONE, because -1 >> 1 is -1

    def drop(self, codes: Int64s) -> int:
        """Drop the rows of some keys, given by ascending codes; return the number of dropped rows."""
        before = self.rows
        if codes.size and before:
            gone, _ = positions_of(self._codes(), codes)
            self._every[gone] = _GONE
            self._reindex()
        return before - self.rows

    def admit(self, new: CacheRows) -> int:
        """Add rows of keys not held yet, evicting rows of less frequent keys if there is too little room.

        Returns the frequency below which no row was kept; 0 if nothing was evicted.
        """
        if new.frequency.size == 0:
            return 0
        kept, cut = self._alive, 0
        needed = self.used_bytes + int(self._row_ends(new.batch)[-1])
        room = self.frames * self._filled(needed, self.rows + new.frequency.size)
        if needed > _FULL * room:
            most = int(_REFILLED * room * (self.rows + new.frequency.size) / needed)
            chosen, chosen_new, cut = hottest((self.frequency, self.codes), (new.frequency, new.codes), most)
            kept[kept] = chosen
            new = new.filter(chosen_new)
        self._rewrite(self._pages_to_rewrite(kept, new), kept, new)
        return cut

    def _pages_to_rewrite(self, kept: Bools, new: CacheRows) -> list[int]:
        """Return the pages with the most room to gain, as many as new rows need, and all that gain over a quarter."""
        wanted = int(self._row_ends(new.batch)[-1]) if new.frequency.size else 0
        room = self._filled(self.used_bytes + wanted, self.rows + new.frequency.size)
        wanted += room * (1 - len(self._free))  # one page more, because the last page will not be full
        rows = np.diff(self._first_row)
        gone = rows - np.add.reduceat(kept, self._first_row[:-1], dtype=np.int64) if rows.size else rows
        row_bytes = np.array([page.row_bytes for page in self._pages], np.int64)
        gained = room - row_bytes + row_bytes * gone // np.maximum(rows, 1)
        by_gain = np.argsort(-gained, kind="stable")
        enough = 0 if wanted <= 0 else int(np.searchsorted(np.cumsum(gained[by_gain]), wanted)) + 1
        enough = max(enough, int(np.count_nonzero(gained > room // 4)))
        if self._index.scattered:  # an evicted key must leave all its pages
            enough = max(enough, int(np.count_nonzero(gained > 0)))
        chosen: list[int] = by_gain[:enough].tolist()
        return chosen

    def _rewrite(self, numbers: list[int], kept: Bools, new: CacheRows) -> None:
        """Rewrite some pages one at a time with the rows to keep, then append the new rows."""
        gone, written, rest = set(numbers), _Written(), None
        for number, page in enumerate(self._pages):
            if number not in gone:
                written.pages.append(page)
                written.frequency.append(self._every[self._first_row[number] : self._first_row[number + 1]])
        for number in numbers:
            rest = self._write(self._rows_of([number], kept), rest, written, self._pages[number].frame)
        bounds = cut_pages(self._row_ends(new.batch), self._room).tolist() if new.frequency.size else []
        for begin, end in pairwise([*bounds, new.frequency.size]):
            rest = self._write(new.slice(begin, end), rest, written)
        if rest is not None:
            self._write_page(rest, written)
        self._hold(written)
        if written.lost:
            self.drop(np.unique(np.concatenate(written.lost)))

    def _rows_of(self, numbers: Sequence[int], kept: Bools) -> CacheRows:
        """Return copies of the kept rows of some pages."""
        first = self._first_row
        parts = [np.flatnonzero(kept[first[i] : first[i + 1]]).astype(np.int32) for i in numbers]
        row = np.concatenate(parts) if parts else np.empty(0, np.int32)
        page = np.repeat(np.array(numbers, np.int32), [part.size for part in parts])
        arrays = self.run.gather(self.layout.columns, page, row)
        return CacheRows(pa.RecordBatch.from_arrays(arrays, schema=self.layout.schema), self._every[first[page] + row])

    def _row_ends(self, batch: pa.RecordBatch) -> Int64s:
        """Return the bytes of rows 0..i for each i, counting at least ``least_row`` bytes per row."""
        ends = row_ends(batch, self.layout)
        if any(column.kind in ("binary", "arrow") for column in self.columns):
            ends = np.cumsum(np.maximum(np.diff(ends, prepend=0), self._shape.least_row))
        return ends

    def _write(
        self, rows: CacheRows, rest: CacheRows | None, written: _Written, frame: int | None = None
    ) -> CacheRows | None:
        """Write ``rest`` and ``rows`` in full pages; return the rows of the last, partly filled page.

        Frees ``frame``, where the rows were stored before.
        """
        if frame is not None:
            self._free.append(frame)
        rows = rows if rest is None else CacheRows.concat([rest, rows])
        if rows.frequency.size == 0:
            return None
        cuts = cut_pages(self._row_ends(rows.batch), self._room).tolist()
        for begin, end in pairwise(cuts):
            self._write_page(rows.slice(begin, end), written)
        last = rows.slice(cuts[-1], rows.frequency.size)
        return last if len(cuts) == 1 else CacheRows(pa.concat_batches([last.batch, self._no_rows]), last.frequency)

    def _write_page(self, rows: CacheRows, written: _Written) -> None:
        batch = pa.concat_batches([rows.batch, self._no_rows])  # a copy: of a slice, Arrow would write more rows
        message = batch.serialize()
        if message.size > self._frame or not self._free:
            written.lost.append(rows.codes)
            return
        frame = self._free.pop()
        self._arena[frame * self._frame :][: message.size] = np.frombuffer(message, np.uint8)
        row_bytes = int(self._row_ends(batch)[-1])
        written.pages.append(_Page(frame, batch.num_rows, row_bytes, message.size))
        written.frequency.append(rows.frequency)
