"""The tuple cache of a front stage: rows of R by key, in memory, clustered like R itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.kernels.frequency import count_hits
from semistream.kernels.page_cuts import cut_pages
from semistream.kernels.search import positions_of
from semistream.kernels.sweep import match_levels
from semistream.kernels.types import Bools, Int32s, Int64s
from semistream.relation import PageRun
from semistream.relation.disk import allocate_buffer
from semistream.relation.page_layout import ColumnLayout, PageLayout
from semistream.relation.page_writer import frame_bytes
from semistream.relation.row_ends import row_ends

_MOST_FRAME, _LEAST_FRAME = 1 << 16, 1 << 12
_MOST_REBUILT = 8  # pages rewritten at a time; fewer in a small cache
_COPIES = 3  # of their rows that there are meanwhile
_NEARLY = 0.9  # share of the pages from which the cache counts as full
_FULL = 0.97  # share of the pages' room from which rows have to go
_REFILLED = 0.95
_TABLE_CODES = 0  # rows of the cache lie too far apart to be looked up in a table
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class CacheRows:
    """Rows in the order of their codes, all rows of each key, and how often each row's key was asked for."""

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

    @classmethod
    def merge(cls, parts: list[CacheRows]) -> CacheRows:
        """Rows of several parts in the order of their codes."""
        if len(parts) == 1:
            return parts[0]
        batch = pa.concat_batches([part.batch for part in parts])
        frequency = np.concatenate([part.frequency for part in parts])
        codes = batch.column(0).to_numpy()
        if np.any(codes[1:] < codes[:-1]):
            order = np.argsort(codes, kind="stable")
            batch, frequency = batch.take(pa.array(order)), frequency[order]
        return cls(batch, frequency)


@dataclass
class _Pages:
    """Pages as they are written: their frames, what they hold, and the keys of which some rows found no room."""

    frames: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    frequency: list[Int32s] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class TupleCache:
    """Rows of R and their frequencies in pages of R's own format, ascending by code over all pages, in ``nbytes``.

    Stream codes in order are matched with it by the kernel that matches pages of R, and rows are copied out by the same
    gatherer. Of a key all rows are held or none. Rows come and go by rewriting all pages, a few at a time and in
    place, so it is done for many rows at once.
    """

    def __init__(self, columns: Sequence[ColumnLayout], nbytes: int) -> None:
        schema = pa.schema([pa.field(str(i), column.type) for i, column in enumerate(columns)])
        self.layout = PageLayout.with_codes(schema)
        self.columns = self.layout.columns[1:]
        self._frame = max(min(_MOST_FRAME, nbytes // 128 // _LEAST_FRAME * _LEAST_FRAME), _LEAST_FRAME)
        self._room = self._frame - frame_bytes(self.layout)
        row_bytes = max(sum(column.fixed_bytes for column in columns), 8)
        index_bytes = 64 + 8 * self.layout.num_buffers + 4 * self._frame // row_bytes  # of a page: where, frequencies
        self._rebuilt = max(min(nbytes // self._frame // 16, _MOST_REBUILT), 1)
        frames = (nbytes - _COPIES * self._rebuilt * self._frame) // (self._frame + index_bytes)
        self.frames = max(frames, 0) if self._room > 0 else 0
        self._arena = allocate_buffer(max(self.frames, 1) * self._frame)
        self._free = list(range(self.frames))[::-1]
        self._nested = any(pa.types.is_nested(column.type) for column in columns)
        self._no_rows = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        self._hold(_Pages())

    def _hold(self, pages: _Pages) -> None:
        self._frames = np.array(pages.frames, np.int64)
        rows, nbytes = np.array(pages.rows, np.int32), np.array(pages.nbytes, np.int64)
        starts = (self._frames * self._frame)[np.newaxis]
        self.run = PageRun(self.layout, self._arena, np.arange(rows.size), starts, rows, nbytes[np.newaxis])
        self.frequency = np.concatenate(pages.frequency) if pages.frequency else np.empty(0, np.int32)
        self._first_row = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows, dtype=np.int64)])
        self.used_bytes = int(nbytes.sum())

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.frequency.size

    @property
    def fill(self) -> float:
        """The share of the pages that is in use."""
        return self.run.pages.size / self.frames if self.frames else 1.0

    @property
    def nearly_full(self) -> bool:
        """Whether there is hardly a page left for more."""
        return self.fill >= _NEARLY

    @property
    def codes(self) -> Int64s:
        """The codes of all rows, ascending."""
        bounds = zip(self.run.code_starts.tolist(), self.run.rows.tolist(), strict=True)
        parts = [self.run.words[start : start + rows] for start, rows in bounds]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def holds(self, codes: Int64s) -> Bools:
        """Which codes have rows here."""
        return positions_of(codes, self.codes)[0]

    def probe(
        self, codes: Int64s, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Pairs of a position in the ascending ``codes`` and a row, as many at a time as the arrays given can hold."""
        run, none = self.run, np.zeros(1, np.int64)
        level = np.ascontiguousarray(codes).view(np.uint8), none, np.zeros(1, np.bool_), none, 0, np.array([codes.size])
        passed, ever, cursors = np.zeros(run.pages.size, np.int64), (none, none + 1, none[:0]), np.zeros(1, np.int64)
        cursor = np.array([0, 0, -1, -1], np.int64)
        table = np.empty(_TABLE_CODES, np.int32)
        while cursor[0] < run.pages.size:
            found = match_levels(
                run.words, run.code_starts, run.rows, passed, *level, none, *ever, cursors, table, cursor,
                position, page, row,
            )  # fmt: skip
            count_hits(page[:found], row[:found], self._first_row, self.frequency)
            yield position[:found], page[:found], row[:found]

    def everything(self) -> CacheRows:
        """Copies of all rows."""
        return self._kept_rows(np.ones(self.rows, np.bool_), 0, self.run.pages.size)

    def age(self) -> None:
        """Halve all frequencies, so that what was hot long ago gives way."""
        self.frequency >>= 1

    def drop(self, codes: Int64s) -> int:
        """Let the rows of some keys, in ascending order, go; gives how many rows went."""
        own = self.codes
        if codes.size == 0 or own.size == 0:
            return 0
        gone, _ = positions_of(own, codes)
        if gone.any():
            self._rebuild(~gone, None)
        return int(np.count_nonzero(gone))

    def admit(self, rows: CacheRows) -> int:
        """Take in rows of keys that are not here, in place of rows of keys asked for less often.

        Gives the frequency below which nothing was kept: 0 while there is room.
        """
        room = self.frames * self._room
        needed = (
            self.used_bytes + int(row_ends(rows.batch, self.layout)[-1]) if rows.frequency.size else self.used_bytes
        )
        if needed <= _FULL * room:
            self._rebuild(np.ones(self.rows, np.bool_), rows)
            return 0
        every = np.concatenate([self.frequency, rows.frequency])
        most = int(_REFILLED * room * every.size / needed)
        cut = int(np.partition(every, every.size - most)[every.size - most]) if most else int(every.max()) + 1
        # Many keys may be asked for just so often: old ones stay before new ones come, and a lot decides among equals.
        kept, kept_new = self.frequency > cut, rows.frequency > cut
        spare = most - int(np.count_nonzero(kept) + np.count_nonzero(kept_new))
        at_cut = self.frequency == cut
        kept |= at_cut & _drawn(self.codes, spare, int(np.count_nonzero(at_cut)))
        spare -= int(np.count_nonzero(kept & at_cut))
        at_cut = rows.frequency == cut
        kept_new |= at_cut & _drawn(rows.codes, spare, int(np.count_nonzero(at_cut)))
        self._rebuild(kept, rows.filter(kept_new))
        return cut

    def _rebuild(self, kept: Bools, new: CacheRows | None) -> None:
        """Keep some rows and take new ones in: first room is made, then there is enough wherever the new ones go."""
        if not kept.all():
            self._rewrite(kept, None)
        if new is not None and new.frequency.size:
            self._rewrite(np.ones(self.rows, np.bool_), new)

    def _rewrite(self, kept: Bools, new: CacheRows | None) -> None:
        """Write all pages anew, a few at a time, with the rows to keep and new ones."""
        pages, rest = _Pages(), None
        count = self.run.pages.size
        last_codes = self.codes[self._first_row[1:] - 1]
        taken = 0
        for begin in range(0, max(count, 1), self._rebuilt):
            end = min(begin + self._rebuilt, count)
            parts = [] if rest is None else [rest]
            parts.append(self._kept_rows(kept, begin, end))
            if new is not None:
                codes = new.codes
                stop = codes.size if end == count else int(np.searchsorted(codes, last_codes[end - 1], "right"))
                parts.append(CacheRows(new.batch.slice(taken, stop - taken), new.frequency[taken:stop]))
                taken = stop
            self._free.extend(self._frames[begin:end].tolist())
            rest = self._write(CacheRows.merge(parts), pages, to_the_end=end == count)
        self._hold(pages)
        if pages.lost:
            self.drop(np.unique(np.array(pages.lost, np.int64)))

    def _kept_rows(self, kept: Bools, begin: int, end: int) -> CacheRows:
        first = int(self._first_row[begin])
        rows = np.flatnonzero(kept[first : int(self._first_row[end])]) + first
        page = (np.searchsorted(self._first_row, rows, "right") - 1).astype(np.int32)
        row = (rows - self._first_row[page]).astype(np.int32)
        arrays = self.run.gather(self.layout.columns, page, row)
        return CacheRows(pa.RecordBatch.from_arrays(arrays, schema=self.layout.schema), self.frequency[rows])

    def _write(self, rows: CacheRows, pages: _Pages, *, to_the_end: bool) -> CacheRows | None:
        """Write full pages; gives back the rows of the last one unless it is the end."""
        batch = rows.batch
        if batch.num_rows == 0:
            return None
        cuts = cut_pages(row_ends(batch, self.layout), self._room).tolist()
        for begin, end in pairwise([*cuts, batch.num_rows] if to_the_end else cuts):
            page = batch.slice(begin, end - begin)
            message = (pa.concat_batches([page, self._no_rows]) if self._nested else page).serialize()
            if message.size > self._frame or not self._free:
                pages.lost.extend(np.unique(rows.codes[begin:end]).tolist())
                continue
            frame = self._free.pop()
            at = frame * self._frame
            self._arena[at : at + message.size] = np.frombuffer(message, np.uint8)
            pages.frames.append(frame)
            pages.rows.append(end - begin)
            pages.nbytes.append(message.size)
            pages.frequency.append(rows.frequency[begin:end])
        if to_the_end:
            return None
        return CacheRows(batch.slice(cuts[-1]), rows.frequency[cuts[-1] :])


def _drawn(codes: Int64s, rows: int, among: int) -> Bools:
    """A lot for each row, the same for all rows of a key, that lets about ``rows`` of ``among`` win."""
    if rows >= among:
        return np.ones(codes.size, np.bool_)
    if rows <= 0:
        return np.zeros(codes.size, np.bool_)
    lots = (codes.view(np.uint64) * _GOLDEN) >> np.uint64(32)
    won: Bools = lots < np.uint64(rows / among * 2**32)
    return won
