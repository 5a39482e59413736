"""The codes of the rows of a run, in the form that the matching kernels take: ascending stretches of 64-bit words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from semistream.kernels.array_types import Int32s, Int64s
from semistream.keys import KeyCodec
from semistream.relation import PageRun

COMPUTED_ROW_BYTES = 56
"""What `ComputedCodes` takes for each row of a run while it is made: codes, their order, rows, and a page's values."""


class RunCodes(Protocol):
    """Codes of a run's rows: stretch ``i`` is ``words[starts[i] : starts[i] + rows[i]]``, ascending and not empty."""

    @property
    def words(self) -> Int64s:
        """Where the codes lie."""

    @property
    def starts(self) -> Int64s:
        """Where each stretch begins."""

    @property
    def rows(self) -> Int32s:
        """How many codes each stretch has."""

    def places(self, stretch: Int32s, code: Int32s) -> tuple[Int32s, Int32s]:
        """Which pages and rows of the run have the codes found."""


class ClusteredCodes:
    """The codes by which R is clustered, where they lie in the run: each page is a stretch."""

    def __init__(self, run: PageRun) -> None:
        self.words = run.words
        self.starts = run.code_starts
        self.rows = run.rows

    def places(self, stretch: Int32s, code: Int32s) -> tuple[Int32s, Int32s]:
        """Which pages and rows of the run have the codes found: just these."""
        return stretch, code


@dataclass(frozen=True)
class ComputedCodes:
    """The codes of any columns of a run whose rows come in any order: computed and sorted, one stretch for the run."""

    words: Int64s
    starts: Int64s
    rows: Int32s
    page: Int32s
    row: Int32s

    @classmethod
    def of(cls, run: PageRun, codec: KeyCodec) -> ComputedCodes:
        """Codes of the columns that ``codec`` names. Rows with a null among them match nothing and are left out."""
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
        """Which pages and rows of the run have the codes found."""
        del stretch  # there is one
        return self.page[code], self.row[code]
