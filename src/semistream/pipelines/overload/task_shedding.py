"""TaskShedding: pick the rows that a task keeps and those it sheds, under a latency goal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import IO

import numpy as np
import pyarrow as pa

from semistream.errors import PipelineError
from semistream.kernels.array_types import Int64s
from semistream.pipelines.inputs.parquet_files import require_readable
from semistream.pipelines.inputs.shed_archive import first_id
from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.overload.arrival_times import Arrived, ArrivedRows, ArrivedTogether
from semistream.pipelines.overload.row_values import ValuedRows
from semistream.shedding import Decision, Kept, PartSummary, Strategy, StreamPart, read_decision

ROWS_PART = 1 << 21
"""Part number of Spark's first partition; smaller numbers belong to splits."""

_TICKS = 100  # arrival ticks in the latency goal


@dataclass(frozen=True)
class TaskShedding:
    """Shedding settings shared by all tasks of a batch under a latency goal.

    ``source`` is the schema of the rows. ``at`` is when the batch was planned, in seconds, and stands in for an unknown
    arrival time. ``decision``, as text, is set if the batch sheds rows. ``valued`` estimates the results of rows. If
    ``weighted``, kept rows carry the columns of a sample.
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
        """Resolution of arrival times in milliseconds."""
        return max(int(self.goal_s * 1000 / _TICKS), 1)

    @cached_property
    def decided(self) -> Decision | None:
        """Decision on the rows to keep; None if the batch sheds none."""
        return None if self.decision is None else read_decision(self.decision)

    @property
    def needs_matches(self) -> bool:
        """True if the decision depends on the number of results of each row."""
        return self.decided is not None and self.decided.results is not None

    def split(self, split: SourceSplit) -> Arrived | None:
        """Return the arrival times and kept rows of a split; None if all of its rows are invalid."""
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
        """Return the arrival time of a split's rows in milliseconds."""
        return int(self.at * 1000) if split.came_ms is None else split.came_ms

    def split_matches(self, split: SourceSplit) -> Int64s:
        """Return the number of results of each row of a split; unreadable rows count as the least valuable."""
        assert self.valued is not None
        found = self.valued.matches(_readable(split, self.valued.on), self.source)[: split.rows]
        unread = np.full(split.rows - found.size, self.valued.least_results, np.int64)
        return np.concatenate([found, unread])

    def partition(
        self, batches: Iterable[pa.RecordBatch], number: int
    ) -> Iterator[tuple[pa.RecordBatch, ArrivedRows | None]]:
        """Yield the batches of a Spark partition with the arrival times and kept rows of each.

        A batch has the source's columns by position, the text of unreadable rows, and the arrival times. If the
        decision needs the matches of all rows, the batches are set aside in a file until these are counted.
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
            f"partition {number} of the batch no longer has the {kept.mask.size} rows of the shedding decision: Spark "
            "divided the batch differently. Nothing of it was committed; start the pipeline again to decide anew."
        )

    def _applied(self, part: int, rows: int, matches: Int64s | None = None) -> Kept:
        assert self.decided is not None
        if not rows and part not in self.decided.parts:  # an empty partition
            return Kept(np.zeros(0, np.bool_), np.zeros(0))
        return self.decided.apply(StreamPart(rows, part, matches))

    def _decided_rows(self, part: int) -> int:
        assert self.decided is not None
        return dict(zip(self.decided.parts, self.decided.rows, strict=True)).get(part, 0)

    def sheds_all(self, split: SourceSplit) -> bool:
        """True if all rows of a split are shed, which is known without reading it."""
        return self.decided is not None and split.part is not None and self.decided.keeps_none(split.part, split.rows)

    @property
    def reads_shed(self) -> bool:
        """True if shed rows must be read to bound the number of missing results."""
        return self.valued is not None and not self.valued.unique

    def _set_aside(
        self, batches: Iterable[pa.RecordBatch], aside: IO[bytes]
    ) -> tuple[Iterable[pa.RecordBatch], Int64s]:
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

    def row_matches(self, batch: pa.RecordBatch) -> Int64s:
        """Return the number of results of each row of a batch that Spark has read."""
        assert self.valued is not None
        columns = batch.columns[: len(self.source)]
        return self.valued.matches([pa.RecordBatch.from_arrays(columns, names=self.source.names)], self.source)


def summarize_inputs(
    shedding: TaskShedding, strategy: Strategy, inputs: Iterable[pa.RecordBatch | SourceSplit], number: int
) -> list[PartSummary]:
    """Summarise the parts of a task for the decision on which rows to shed.

    Batches have the columns described in `TaskShedding.partition`.
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
    """Yield the batches of a split up to damaged content, which goes to the quarantine."""
    try:
        yield from split.read(columns)
    except (pa.ArrowException, OSError) as error:
        require_readable(split.path, error)
