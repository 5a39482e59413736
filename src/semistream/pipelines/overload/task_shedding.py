"""TaskShedding: what a task under a goal for latency knows, and what its parts of a batch keep."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import IO

import numpy as np
import pyarrow as pa

from semistream.errors import PipelineError
from semistream.pipelines.inputs.parquet_files import require_readable
from semistream.pipelines.inputs.shed_archive import first_id
from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.overload.arrival_times import Arrived, ArrivedRows, ArrivedTogether
from semistream.pipelines.overload.row_values import ValuedRows
from semistream.pipelines.steps.row_flags import Numbers
from semistream.shedding import Decision, Kept, PartSummary, Strategy, StreamPart, read_decision

ROWS_PART = 1 << 21
"""The number of the part that Spark's first partition is: numbers below are those of splits."""

_TICKS = 100  # that the goal has, for how long rows took


@dataclass(frozen=True)
class TaskShedding:
    """What all tasks of a batch under a goal share.

    Rows have the columns ``source``; ``at`` is when the batch was planned, in seconds, for rows of which it is not
    known when they came. If rows are shed there is a ``decision``, as text. ``valued`` tells how many results rows
    give. If they are ``weighted``, those that are kept carry the columns of a sample.
    """

    pipeline: str
    goal_s: float
    at: float
    source: pa.Schema
    decision: str | None = None
    valued: ValuedRows | None = None
    weighted: bool = False

    @property
    def tick_ms(self) -> int:
        """How finely it is told when rows came."""
        return max(int(self.goal_s * 1000 / _TICKS), 1)

    @cached_property
    def decided(self) -> Decision | None:
        """What was decided, if rows are shed."""
        return None if self.decision is None else read_decision(self.decision)

    @property
    def needs_matches(self) -> bool:
        """Whether the decision is about how many results each row gives."""
        return self.decided is not None and self.decided.results is not None

    def split(self, split: SourceSplit) -> Arrived | None:
        """The rows of a split; nothing of one whose rows are all invalid."""
        if split.part is None:
            return None
        came = self.came_ms(split)
        all_kept = self.decided is None or self.decided.keeps_all(split.part, split.rows)
        if all_kept and not self.weighted:
            return ArrivedTogether(split.rows, came)
        kept = None
        if self.decided is not None:
            matches = self.split_matches(split) if self.needs_matches else None
            kept = self._applied(split.part, split.rows, matches)
        ids = np.arange(split.rows, dtype=np.int64) + first_id(split.part)
        return ArrivedRows(np.full(split.rows, came, np.int64), ids, kept)

    def came_ms(self, split: SourceSplit) -> int:
        """When the rows of a split came."""
        return int(self.at * 1000) if split.came_ms is None else split.came_ms

    def split_matches(self, split: SourceSplit) -> Numbers:
        """How many results each row of a split gives; those that cannot be read give as few as any."""
        assert self.valued is not None
        found = self.valued.matches(_readable(split, self.valued.on), self.source)[: split.rows]
        unread = np.full(split.rows - found.size, self.valued.least_results, np.int64)
        return np.concatenate([found, unread])

    def partition(
        self, batches: Iterable[pa.RecordBatch], number: int
    ) -> Iterator[tuple[pa.RecordBatch, ArrivedRows | None]]:
        """Rows that Spark has read, in a partition of that number, with what is known of each.

        A batch has the source's columns by position, the text of rows that cannot be read, and when rows came. Which
        rows are kept is known when all their matches are: until then they are set aside in a file.
        """
        part, begin = ROWS_PART + number, 0
        kept: Kept | None = None
        with tempfile.TemporaryFile() as aside:
            if self.decided is not None and self.needs_matches:
                batches, matches = self._set_aside(batches, aside)
                kept = self._applied(part, matches.size, matches)
            elif self.decided is not None:
                kept = self._applied(part, self._decided_rows(part))
            for batch in batches:
                rows = batch.num_rows
                if kept is not None and begin + rows > kept.mask.size:
                    break
                arrived = batch.column(batch.num_columns - 1).fill_null(int(self.at * 1000))
                ids = np.arange(begin, begin + rows, dtype=np.int64) + first_id(part)
                own = None if kept is None else kept.slice(begin, rows)
                yield batch.remove_column(batch.num_columns - 1), ArrivedRows(arrived.to_numpy(), ids, own)
                begin += rows
            else:
                if kept is None or begin == kept.mask.size:
                    return
        assert kept is not None
        raise PipelineError(
            f"partition {number} of the batch has not {kept.mask.size} rows, as when it was decided which to shed: "
            "Spark has cut the batch otherwise. Nothing of it was committed; start the pipeline again, and it is "
            "decided anew."
        )

    def _applied(self, part: int, rows: int, matches: Numbers | None = None) -> Kept:
        assert self.decided is not None
        if not rows and part not in self.decided.parts:  # a partition without any rows
            return Kept(np.zeros(0, np.bool_), np.zeros(0))
        return self.decided.apply(StreamPart(rows, part, matches))

    def _decided_rows(self, part: int) -> int:
        assert self.decided is not None
        return dict(zip(self.decided.parts, self.decided.rows, strict=True)).get(part, 0)

    def sheds_all(self, split: SourceSplit) -> bool:
        """Whether nothing is kept of a split, which then need not be read to know what becomes of its rows."""
        return self.decided is not None and split.part is not None and self.decided.keeps_none(split.part, split.rows)

    @property
    def reads_shed(self) -> bool:
        """Whether rows that are shed have to be looked at, to know how many results are missing."""
        return self.valued is not None and not self.valued.unique

    def _set_aside(
        self, batches: Iterable[pa.RecordBatch], aside: IO[bytes]
    ) -> tuple[Iterable[pa.RecordBatch], Numbers]:
        assert self.valued is not None
        writer = None
        found = [np.zeros(0, np.int64)]
        for batch in batches:
            if writer is None:
                writer = pa.ipc.new_stream(aside, batch.schema)
            writer.write_batch(batch)
            found.append(self.row_matches(batch))
        if writer is None:
            return (), found[0]
        writer.close()
        aside.seek(0)
        return pa.ipc.open_stream(aside), np.concatenate(found)

    def row_matches(self, batch: pa.RecordBatch) -> Numbers:
        """How many results each row that Spark has read gives."""
        assert self.valued is not None
        columns = batch.columns[: len(self.source)]
        return self.valued.matches([pa.RecordBatch.from_arrays(columns, names=self.source.names)], self.source)


def summarize_inputs(
    shedding: TaskShedding, strategy: Strategy, inputs: Iterable[pa.RecordBatch | SourceSplit], number: int
) -> list[PartSummary]:
    """What is to be known of a task's parts before it is decided which rows are shed.

    Batches are as those of `TaskShedding.partition`.
    """
    summaries = []
    pieces: list[StreamPart] = []
    part = ROWS_PART + number
    needs_matches = shedding.valued is not None
    for each in inputs:
        if isinstance(each, SourceSplit):
            if each.part is not None:
                matches = shedding.split_matches(each) if needs_matches else None
                summaries.append(strategy.summarize(StreamPart(each.rows, each.part, matches)))
        else:
            matches = shedding.row_matches(each) if needs_matches else None
            pieces.append(StreamPart(each.num_rows, part, matches))
    if pieces:
        summaries.append(strategy.summarize(StreamPart.concat(pieces)))
    return summaries


def _readable(split: SourceSplit, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Batches of a split as far as it can be read; the rest of it goes to the quarantine."""
    try:
        yield from split.read(columns)
    except (pa.ArrowException, OSError) as error:
        require_readable(split.path, error)
