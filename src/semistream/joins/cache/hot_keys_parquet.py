"""Collects the rows of hot keys where they lie anywhere in R: the frequency recorder before a scan of plain Parquet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.cache.hot_keys import KeyCounters
from semistream.joins.cache.tuple_cache import CacheRows, TupleCache
from semistream.joins.condition.run_codes import ComputedCodes, RunCodes
from semistream.joins.mesh.operator import MeshJoin
from semistream.kernels.array_types import Bools, Int64s
from semistream.kernels.search import positions_of
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout, PageLayout
from semistream.relation.read.row_gatherer import row_bytes

_KEY_BYTES = 96  # of a key that is followed: its numbers, a copy as keys come and go, where its rows begin and end
_PLACE_BYTES = 40  # of a row as it is found: where it stands, whose it is, how large
_PIECE_BYTES = 1024  # of a batch of rows besides them
_GUESSED_BYTES = 32  # of a string or nested value that has not been seen
_LARGE = 4  # a key with more than such a part of the room is not worth it
_RELIEF = 8  # part of the room that is left free when keys had to go
_MOST_COUNT = 2**31 - 1


class ScatteredHotKeys:
    """Counts the keys that the cache misses, and collects the rows of those missed most over one whole pass of R.

    A cache must hold all rows of a key or none, and in an R that is not clustered they may lie in any page. `MeshJoin`
    scans R in a fixed order, round and round, and tells of every run that it meets, whatever stream tuples wait. So a
    key is followed from the page at which the scan stands when the key has been missed more than ``threshold`` times,
    and all rows with its code are copied from every page until the scan is at that page again: ``pages_of_scan`` pages
    later each page of R has passed exactly once, and the rows are all that there are. This is what makes a stream
    tuple's result complete in MESHJOIN (MESH Theorem 3.1). Only then does `take` give them away.

    Keys are codes: rows whose keys share one are collected together, and the cache checks pairs as the join does. Rows
    with a null key have no code and are not collected; nothing asks for them. A key without rows is let go at the end.

    It takes the place of `HotKeys`, where stream tuples are counted as they are missed, and not the pairs that they
    find, of which there may be many for each tuple: the rows are then there when the first of these tuples is through.
    Keys that are followed and their rows take at most ``nbytes``, and as much again while rows are put in order. When
    they are too many, those asked for least are let go, and a key that would take a fourth alone.
    """

    def __init__(
        self, columns: tuple[ColumnLayout, ...], layout: PageLayout, scan: MeshJoin, *, nbytes: int, bits: int
    ) -> None:
        self.threshold = 2
        self._columns = columns
        self._layout = layout
        self._scan = scan
        self._counters = KeyCounters(bits)
        self._most_found = max(nbytes // 8 // _PLACE_BYTES, 1)  # rows of a run
        self._room = nbytes - nbytes // 8
        self._guess = 8 + sum(
            column.fixed_bytes + (_GUESSED_BYTES if column.kind in ("binary", "arrow") else 0) for column in columns
        )
        self._keys = _Keys.none()
        self._pieces: list[pa.RecordBatch] = []

    def forget(self) -> None:
        """Let all keys and their rows go: R is another, and its scan begins anew. Keys that are hot may come again."""
        self._keys, self._pieces = _Keys.none(), []
        self._counters.age()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that `take` would give."""
        return int(self._keys.nbytes[self._complete()].sum())

    @property
    def full(self) -> bool:
        """Whether rows should be taken, so that there is room to follow other keys."""
        complete = self._complete()
        return 4 * int(self._claims()[complete & (self._keys.nbytes > 0)].sum()) >= self._room

    def miss(self, codes: Int64s) -> None:
        """Count stream tuples that go to the scan, by their ascending codes, and follow keys that are hot."""
        if codes.size == 0:
            return
        first = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
        count = np.diff(np.append(first, codes.size))
        known, key = self._keys.find(codes[first])
        self._keys.asked[key[known]] += count[known]
        self._release(self._complete() & (self._keys.nbytes == 0))
        most = (self._room - int(self._claims().sum())) // (_KEY_BYTES + self._guess)
        if most <= 0:
            return
        row = np.repeat(first[~known].astype(np.int32), count[~known])
        _, hot, estimate = self._counters.count(
            codes, np.zeros(1, np.int64), np.zeros_like(row), row, most_rows=codes.size, threshold=self.threshold
        )
        if hot.size > most:
            chosen = np.sort(np.argsort(-estimate, kind="stable")[:most])
            hot, estimate = hot[chosen], estimate[chosen]
        until = self._scan.pages_passed + self._scan.pages_of_scan
        self._keys = self._keys.with_new(codes[hot], estimate.astype(np.int64), until)

    def meet(self, run: PageRun, codes: RunCodes) -> None:
        """Copy the rows of a run whose keys are followed and have not met all of R: a `RunWatcher`."""
        keys = self._keys
        if keys.codes.size == 0:
            return
        assert isinstance(codes, ComputedCodes)  # one ascending stretch: of an R that is not clustered
        begin, end = (np.searchsorted(codes.words, keys.codes, side) for side in ("left", "right"))
        found = np.flatnonzero((end > begin) & ~self._complete())
        if found.size == 0:
            return
        gone = np.zeros(keys.codes.size, np.bool_)
        by_heat = found[np.argsort(-keys.asked[found], kind="stable")]
        gone[by_heat[np.cumsum((end - begin)[by_heat]) > self._most_found]] = True
        found = found[~gone[found]]
        rows = (end - begin)[found]
        owner = np.repeat(found, rows)
        at = np.arange(owner.size) + np.repeat(begin[found] - np.cumsum(rows) + rows, rows)
        page, row = codes.page[at], codes.row[at]
        keys.nbytes += np.bincount(
            owner, row_bytes(run, self._columns, page, row) + 8, minlength=keys.codes.size
        ).astype(np.int64)
        gone |= self._too_many()
        kept = ~gone[owner]
        words = codes.words[at[kept]]
        self._release(gone)
        if words.size:
            arrays = [pa.array(words), *run.gather(self._columns, page[kept], row[kept])]
            self._pieces.append(pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema))
            if len(self._pieces) * _PIECE_BYTES > self._room // _RELIEF:
                self._pieces = [pa.concat_batches(self._pieces)]

    def take(self, cache: TupleCache) -> CacheRows | None:
        """The rows of keys that have met all of R, in the order of their codes, none that ``cache`` has; None if none.

        They are followed no longer.
        """
        complete = self._complete()
        given = self._keys.kept(complete)
        self._keys = self._keys.kept(~complete)
        if not given.nbytes.any():
            return None
        pieces, self._pieces = self._pieces, []
        batch = pa.concat_batches(pieces)
        del pieces
        codes = batch.column(0).to_numpy()
        belongs, key = given.find(codes)
        if not belongs.all():
            self._pieces = [batch.filter(pa.array(~belongs))]
        rows = np.flatnonzero(belongs & ~cache.holds(codes))
        rows = rows[np.argsort(codes[rows], kind="stable")]
        asked = np.minimum(given.asked[key[rows]], _MOST_COUNT).astype(np.int32)
        return CacheRows(batch.take(pa.array(rows)), asked) if rows.size else None

    def age(self) -> None:
        """Halve all counts."""
        self._counters.age()
        self._keys.asked >>= 1

    def _complete(self) -> Bools:
        """Which keys have met all of R."""
        complete: Bools = self._keys.until <= self._scan.pages_passed
        return complete

    def _claims(self) -> Int64s:
        """Bytes that are kept for each key, with a row for those of which none has come."""
        return np.maximum(self._keys.nbytes, self._guess) + _KEY_BYTES

    def _too_many(self) -> Bools:
        """Which keys have to go so that the others fit."""
        claims = self._claims()
        room = self._room - _PIECE_BYTES * (len(self._pieces) + 1)
        gone = claims > self._room // _LARGE
        if claims[~gone].sum() > room:
            by_heat = np.argsort(-self._keys.asked, kind="stable")
            taken = np.cumsum(np.where(gone, 0, claims)[by_heat])
            gone[by_heat[taken > room - room // _RELIEF]] = True
        return gone

    def _release(self, gone: Bools) -> None:
        """Follow some keys no longer; what was collected of them goes too."""
        if not gone.any():
            return
        had_rows = bool(self._keys.nbytes[gone].any())
        self._keys = self._keys.kept(~gone)
        if had_rows and self._pieces:
            batch = pa.concat_batches(self._pieces)
            self._pieces = [batch.filter(pa.array(self._keys.find(batch.column(0).to_numpy())[0]))]


@dataclass
class _Keys:
    """Keys that are followed: ascending codes, of each the page counter at which all of R has passed, how often it was
    asked for, and the bytes of its rows so far.
    """

    codes: Int64s
    until: Int64s
    asked: Int64s
    nbytes: Int64s

    @classmethod
    def none(cls) -> _Keys:
        return cls(*(np.zeros(0, np.int64) for _ in range(4)))

    def find(self, codes: Int64s) -> tuple[Bools, Int64s]:
        """Which of some codes are here, and where those are."""
        return positions_of(codes, self.codes)

    def kept(self, some: Bools) -> _Keys:
        return _Keys(self.codes[some], self.until[some], self.asked[some], self.nbytes[some])

    def with_new(self, codes: Int64s, asked: Int64s, until: int) -> _Keys:
        """These and others, in ascending order too, of which no row has come."""
        at = np.searchsorted(self.codes, codes)
        return _Keys(
            np.insert(self.codes, at, codes),
            np.insert(self.until, at, until),
            np.insert(self.asked, at, asked),
            np.insert(self.nbytes, at, 0),
        )
