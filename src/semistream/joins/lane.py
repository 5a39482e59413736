"""A lane joins one run of pages with the stream buffer, in any thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from semistream.joins.emitter import Emitter, PairWatcher
from semistream.joins.level import LevelView
from semistream.kernels.types import Int32s, Int64s
from semistream.relation import PageRun


class Piece(NamedTuple):
    """Some results of a run, or none, and whether they are the last."""

    batch: pa.RecordBatch | None
    last: bool


class Lane:
    """Arrays for pairs and a staging of its own: what it takes to join a run while other lanes join others.

    It gives the results of a run piece by piece, each at most as large as its emitter's batches: `start` the first,
    `advance` those after it. If it ``keeps_pairs``, it has those with codes asked for, before they are checked, for who
    watches the join.
    """

    def __init__(self, emitter: Emitter, matches: int, pairs: bool) -> None:
        self._emitter = emitter
        self._pairs = pairs
        self.keeps_pairs = False
        self._number = np.empty(matches, np.int64)
        self._page, self._row = (np.empty(matches, np.int32) for _ in range(2))
        self.run: PageRun | None = None
        self._found: list[tuple[Int32s, Int32s]] = []
        self._ended = True
        self._results: Iterator[pa.RecordBatch] = iter(())

    def start(self, run: PageRun, passed: Int64s, view: LevelView) -> Piece:
        """Begin with a run; see `LevelView.probe` for the arguments."""
        self.run, self._found, self._ended = run, [], False
        self._results = self._join(run, passed, view)
        return self.advance()

    def advance(self) -> Piece:
        """The next piece of the run's results."""
        batch = next(self._results, None)
        return Piece(batch, batch is None or self._ended)

    def _join(self, run: PageRun, passed: Int64s, view: LevelView) -> Iterator[pa.RecordBatch]:
        for numbers, page, row in view.probe(run, passed, self._number, self._page, self._row):
            if self.keeps_pairs:
                self._found.append((page.copy(), row.copy()))
            kept = self._emitter.verified(view, numbers, run, page, row)
            view.mark(numbers[kept])
            if self._pairs:
                yield from self._emitter.stage(view, numbers[kept], run, page[kept], row[kept])
        self._ended = True
        yield from self._emitter.emit(view)

    def finish(self, watcher: PairWatcher | None) -> None:
        """The last piece was taken: tell what was found, and be free for another run."""
        for _ in self._results:
            pass
        if watcher is not None and self.run is not None:
            for page, row in self._found:
                watcher(self.run, page, row)
        self.run, self._found = None, []
