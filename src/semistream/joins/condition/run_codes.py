"""RunCodes: the codes of a run's rows in the form the matching kernels take, ascending stretches of 64-bit words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from semistream.kernels.array_types import Int32s, Int64s
from semistream.keys import KeyCodec
from semistream.relation import PageRun

COMPUTED_ROW_BYTES = 56
"""Bytes per row of a run while `ComputedCodes` is built: codes, their order, rows, and the values of a page."""


class RunCodes(Protocol):
    """Codes of a run's rows: stretch ``i`` is ``words[starts[i] : starts[i] + rows[i]]``, ascending and not empty."""

    @property
    def words(self) -> Int64s:
        """Array that holds the codes."""

    @property
    def starts(self) -> Int64s:
        """First position of each stretch in ``words``."""

    @property
    def rows(self) -> Int32s:
        """Number of codes of each stretch."""

    def places(self, stretch: Int32s, code: Int32s) -> tuple[Int32s, Int32s]:
        """Return the pages and rows of codes, given by stretch and position in it."""


class ClusteredCodes:
    """The codes by which R is clustered, read in place from the run: each page is a stretch."""

    def __init__(self, run: PageRun) -> None:
        self.words = run.words
        self.starts = run.code_starts
        self.rows = run.rows

    def places(self, stretch: Int32s, code: Int32s) -> tuple[Int32s, Int32s]:
        """Return the arguments, because stretches are pages and positions are rows."""
        return stretch, code


@dataclass(frozen=True)
class ComputedCodes:
    """Codes of any columns of a run, computed and sorted into one stretch. Rows may be in any order."""

    words: Int64s
    starts: Int64s
    rows: Int32s
    page: Int32s
    row: Int32s

    @classmethod
    def of(cls, run: PageRun, codec: KeyCodec) -> ComputedCodes:
        """Compute the codes of the columns of ``codec``. Rows with a null in them match nothing and are left out."""
        total = int(run.rows.sum())
        codes, page, row = np.empty(total, np.int64), np.empty(total, np.int32), np.empty(total, np.int32)
        end = 0
        for position in range(run.pages.size):
            columns = run.batch(position, codec.names).columns
            found, possible = codec.encode(columns)
            rows = np.arange(found.size, dtype=np.int32) if possible is None else np.flatnonzero(possible)
            begin, end = end, end + rows.size
            codes[begin:end] = found if possible is None else found[possible]
            page[begin:end] = position
            row[begin:end] = rows
        order = np.argsort(codes[:end])
        stretches = 1 if end else 0
        starts, rows = np.zeros(stretches, np.int64), np.full(stretches, end, np.int32)
        return cls(codes[order], starts, rows, page[order], row[order])

    def places(self, stretch: Int32s, code: Int32s) -> tuple[Int32s, Int32s]:
        """Return the pages and rows of codes, given by position in the only stretch."""
        del stretch
        return self.page[code], self.row[code]
