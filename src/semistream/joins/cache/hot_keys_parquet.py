"""ScatteredHotKeys: the frequency recorder before a scan of plain Parquet, where a key's rows may lie anywhere in R."""

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

_KEY_BYTES = 96  # per followed key: its numbers, a copy while keys are added or dropped, the bounds of its rows
_PLACE_BYTES = 40  # per row found in a run: its position, its key, its size
_PIECE_BYTES = 1024  # overhead of a batch of rows
_GUESSED_BYTES = 32  # expected of a string or nested value before one is seen
_LARGE = 4  # a key that takes more than 1/4 of the room is dropped
_RELIEF = 8  # 1/8 of the room is left free after dropping keys
_MOST_COUNT = 2**31 - 1


class ScatteredHotKeys:
    """Counts the keys that the cache misses, and collects all rows of the hottest ones over one whole pass of R.

    The cache must hold all rows of a key or none, and in an unclustered R they may lie in any page. `MeshJoin` scans R
    in a fixed order, over and over, and reports every run it joins, whatever tuples wait. When a key is missed more
    than ``threshold`` times, it is followed from the current page of the scan: all rows with its code are copied from
    every page until the scan is back at that page. After ``pages_of_scan`` pages each page of R has passed exactly
    once, so the rows are complete, by the same argument as the result of a stream tuple in MESHJOIN (MESH Theorem
    3.1). Only then does `take` return them.

    Keys are identified by code. Rows whose keys share a code are collected together, and the cache checks pairs as the
    join does. Rows with a null key have no code and are not collected; no tuple matches them. A key without rows is
    dropped at the end of the pass.

    It replaces `HotKeys`. It counts missed stream tuples instead of pairs, of which a tuple may have many, so the rows
    are complete by the time the first of these tuples is finished. Followed keys and their rows take at most
    ``nbytes``, and as much again during sorting. If they need more, the least frequent keys are dropped, and every key
    that alone takes over a quarter.
    """

    def __init__(
        self, columns: tuple[ColumnLayout, ...], layout: PageLayout, scan: MeshJoin, *, nbytes: int, bits: int
    ) -> None:
        self.threshold = 2
        self._columns = columns
        self._layout = layout
        self._scan = scan
        self._counters = KeyCounters(bits)
        self._most_found = max(nbytes // 8 // _PLACE_BYTES, 1)  # most rows copied from a run
        self._room = nbytes - nbytes // 8
        self._guess = 8 + sum(
            column.fixed_bytes + (_GUESSED_BYTES if column.kind in ("binary", "arrow") else 0) for column in columns
        )
        self._keys = _Keys.none()
        self._pieces: list[pa.RecordBatch] = []

    def forget(self) -> None:
        """Drop all keys and their rows, because the scan of a new version starts. Hot keys are counted again."""
        self._keys, self._pieces = _Keys.none(), []
        self._counters.age()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows that `take` would return."""
        return int(self._keys.nbytes[self._complete()].sum())

    @property
    def full(self) -> bool:
        """True if complete keys with rows take a quarter of the room or more, so that `take` should free it."""
        complete = self._complete()
        return 4 * int(self._claims()[complete & (self._keys.nbytes > 0)].sum()) >= self._room

    def miss(self, codes: Int64s) -> None:
        """Count missed stream tuples, given by ascending codes, and follow keys that have become hot."""
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
        """Copy the rows of followed keys from a run, unless a key has seen all of R already. This is a `RunWatcher`."""
        keys = self._keys
        if keys.codes.size == 0:
            return
        assert isinstance(codes, ComputedCodes)  # one ascending stretch, because R is not clustered
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
        """Return the rows of all complete keys by ascending code, except keys that ``cache`` holds; None if none.

        Stops following the complete keys.
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
        """Flag the keys that have seen all of R."""
        complete: Bools = self._keys.until <= self._scan.pages_passed
        return complete

    def _claims(self) -> Int64s:
        """Return the bytes reserved per key: those of its rows so far, or of one row if none has come."""
        return np.maximum(self._keys.nbytes, self._guess) + _KEY_BYTES

    def _too_many(self) -> Bools:
        """Flag the keys to drop so that the others fit."""
        claims = self._claims()
        room = self._room - _PIECE_BYTES * (len(self._pieces) + 1)
        gone = claims > self._room // _LARGE
        if claims[~gone].sum() > room:
            by_heat = np.argsort(-self._keys.asked, kind="stable")
            taken = np.cumsum(np.where(gone, 0, claims)[by_heat])
            gone[by_heat[taken > room - room // _RELIEF]] = True
        return gone

    def _release(self, gone: Bools) -> None:
        """Stop following the flagged keys, and drop the rows collected for them."""
        if not gone.any():
            return
        had_rows = bool(self._keys.nbytes[gone].any())
        self._keys = self._keys.kept(~gone)
        if had_rows and self._pieces:
            batch = pa.concat_batches(self._pieces)
            self._pieces = [batch.filter(pa.array(self._keys.find(batch.column(0).to_numpy())[0]))]


@dataclass
class _Keys:
    """Followed keys: ascending codes, the page count at which each has seen all of R, its misses, and its bytes."""

    codes: Int64s
    until: Int64s
    asked: Int64s
    nbytes: Int64s

    @classmethod
    def none(cls) -> _Keys:
        return cls(*(np.zeros(0, np.int64) for _ in range(4)))

    def find(self, codes: Int64s) -> tuple[Bools, Int64s]:
        """Return a flag per code, True if it is followed, and the position of each followed code."""
        return positions_of(codes, self.codes)

    def kept(self, some: Bools) -> _Keys:
        return _Keys(self.codes[some], self.until[some], self.asked[some], self.nbytes[some])

    def with_new(self, codes: Int64s, asked: Int64s, until: int) -> _Keys:
        """Return these keys plus new ones, also ascending, which have no rows yet."""
        at = np.searchsorted(self.codes, codes)
        return _Keys(
            np.insert(self.codes, at, codes),
            np.insert(self.until, at, until),
            np.insert(self.asked, at, asked),
            np.insert(self.nbytes, at, 0),
        )
