"""A lane joins one run of pages with the stream buffer, in any thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from semistream.joins.emitter import Emitter
from semistream.joins.stream_buffer import LevelView, StreamBuffer
from semistream.kernels.types import Int32s, Int64s
from semistream.relation import PageRun


class Piece(NamedTuple):
    """Some results of a run, or none, and whether they are the last."""

    batch: pa.RecordBatch | None
    last: bool


class Lane:
    """Arrays for pairs and a staging of its own: what it takes to join a run while other lanes join others.

    It gives the results of a run piece by piece, each at most as large as its emitter's batches: `start` the first,
    `advance` those after it. It keeps the pairs with equal codes for those who want to know them.
    """

    def __init__(self, buffer: StreamBuffer, emitter: Emitter, matches: int, *, pairs: bool, keeps_pairs: bool) -> None:
        self._buffer = buffer
        self._emitter = emitter
        self._pairs = pairs
        self._keeps_pairs = keeps_pairs
        self._position = np.empty(matches, np.int64)
        self._page, self._row = (np.empty(matches, np.int32) for _ in range(2))
        self.run: PageRun | None = None
        self.candidates: list[tuple[Int32s, Int32s]] = []
        self._ended = True
        self._results: Iterator[pa.RecordBatch] = iter(())

    @staticmethod
    def memory_bytes(matches: int) -> int:
        """Bytes of the arrays of a lane."""
        return matches * (8 + 4 + 4)

    def start(self, run: PageRun, passed: Int64s, view: LevelView) -> Piece:
        """Begin with a run; see `StreamBuffer.probe` for the arguments."""
        self.run, self.candidates, self._ended = run, [], False
        self._results = self._join(run, passed, view)
        return self.advance()

    def advance(self) -> Piece:
        """The next piece of the run's results."""
        batch = next(self._results, None)
        return Piece(batch, batch is None or self._ended)

    def _join(self, run: PageRun, passed: Int64s, view: LevelView) -> Iterator[pa.RecordBatch]:
        for slots, page, row in self._buffer.probe(view, run, passed, self._position, self._page, self._row):
            if self._keeps_pairs:
                self.candidates.append((page.copy(), row.copy()))
            kept = self._emitter.verified(self._buffer, slots, run, page, row)
            self._buffer.mark(slots[kept])
            if self._pairs:
                yield from self._emitter.stage(self._buffer, slots[kept], run, page[kept], row[kept])
        self._ended = True
        yield from self._emitter.emit(self._buffer)

    def finish(self) -> None:
        """The last piece was taken: the staging is empty again."""
        for _ in self._results:
            pass
        self.run, self.candidates = None, []
