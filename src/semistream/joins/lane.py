"""A lane joins runs of pages with the stream buffer, in any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Arrays for pairs and a staging of its own: what it takes to join runs while other lanes join others.

    It gives the results of some runs piece by piece, each at most as large as its emitter's batches: `start` the first,
    `advance` those after it; a few it keeps until there are more, or until `rest`. If it ``keeps_pairs``, it has those
    with codes asked for, before they are checked, for who watches the join.
    """

    def __init__(self, emitter: Emitter, matches: int, pairs: bool) -> None:
        self._emitter = emitter
        self._pairs = pairs
        self.keeps_pairs = False
        self._number = np.empty(matches, np.int64)
        self._page, self._row = (np.empty(matches, np.int32) for _ in range(2))
        self.run: PageRun | None = None
        self.rows = 0  # of the runs
        self._view: LevelView | None = None
        self._found: list[tuple[Int32s, Int32s]] = []
        self._ended = True
        self._results: Iterator[pa.RecordBatch] = iter(())

    def start(self, runs: Iterator[PageRun], passed: Sequence[Int64s], view: LevelView) -> Piece:
        """Begin with some runs; see `LevelView.probe` for the other arguments."""
        self._view, self._found, self.rows, self._ended = view, [], 0, False
        self._results = self._join_all(runs, passed, view)
        return self.advance()

    def advance(self) -> Piece:
        """The next piece of the runs' results."""
        batch = next(self._results, None)
        return Piece(batch, batch is None or self._ended)

    def _join_all(self, runs: Iterator[PageRun], passed: Sequence[Int64s], view: LevelView) -> Iterator[pa.RecordBatch]:
        for counts in passed:
            self.run = next(runs)
            self.rows += int(self.run.rows.sum())
            yield from self._join(self.run, counts, view)
        self._ended = True
        if self._emitter.half_full:
            yield from self._emitter.emit(view)

    def _join(self, run: PageRun, passed: Int64s, view: LevelView) -> Iterator[pa.RecordBatch]:
        for numbers, page, row in view.probe(run, passed, self._number, self._page, self._row):
            if self.keeps_pairs:
                self._found.append((page.copy(), row.copy()))
            kept = self._emitter.verified(view, numbers, run, page, row)
            view.mark(numbers[kept])
            if self._pairs:
                yield from self._emitter.stage(view, numbers[kept], run, page[kept], row[kept])

    @property
    def keeps(self) -> bool:
        """Whether there are results that have not come out."""
        return self._emitter.staged

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The results that were kept."""
        if self._view is not None:
            yield from self._emitter.emit(self._view)

    def finish(self, watcher: PairWatcher | None) -> None:
        """The last piece was taken: tell what was found, and be free for another run."""
        for _ in self._results:
            pass
        if watcher is not None and self.run is not None:
            for page, row in self._found:
                watcher(self.run, page, row)
        self.run, self._found = None, []
