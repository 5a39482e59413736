"""BatchTask: a worker's part of a batch. It checks and joins rows, writes each where it ends, and accounts for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import PipelineError
from semistream.kernels.array_types import Int64s
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.inputs.parquet_files import require_readable
from semistream.pipelines.inputs.shed_archive import ArchiveSplit, archived_rows
from semistream.pipelines.inputs.splits import RowsSplit, SourceSplit, Split
from semistream.pipelines.ledger.entries import TaskResult, WaitingFile
from semistream.pipelines.overload.arrival_times import CARRIED_SAMPLE, Arrived, ArrivedRows
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.spec.source_spec import RESERVED
from semistream.pipelines.steps.chain import ROW, Chain, Stopped
from semistream.pipelines.steps.snapshot_changes import ChangeChain
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA, invalid_rows
from semistream.pipelines.tables.writer import TableLayout, TableWriter
from semistream.pipelines.task.ownership import archives, can_copy, own_rows
from semistream.pipelines.task.routed_keys import RoutedKeys
from semistream.pipelines.task.row_accounts import Accounts
from semistream.pipelines.task.row_checks import failure_of, in_parts, why_invalid
from semistream.pipelines.task.waiting_rows import WaitingWriter

RAW = "__raw"
"""Column with the text of an unreadable row."""
SINCE = "__since"
"""Column with the time at which the batch that took in the row was planned, in milliseconds."""

BATCH, STOPPED_AT = "batch_id", "stopped_at"
SHED_AGE_MS = "shed_age_ms"
"""Peak: age of the oldest shed row when the batch was planned, in milliseconds."""

__all__ = ["INVALID_SCHEMA", "RAW", "SHED_AGE_MS", "SINCE", "BatchTask", "TaskPlan", "stopped_schema"]


def stopped_schema(source: pa.Schema) -> pa.Schema:
    """Return the columns of rows that end before the last step: the source's, the step and the batch."""
    return pa.schema([*source, pa.field(STOPPED_AT, pa.string()), pa.field(BATCH, pa.int64())])


@dataclass(frozen=True)
class TaskPlan:
    """Plan shared by all tasks of a phase: the source's columns and rules, and the tables by outcome.

    ``at`` is when the batch was planned, in seconds. For each link, ``entering`` has the columns of the rows that enter
    it, ``labels`` its name, ``versions`` the version of its relation, and ``retry_s`` how long rows wait for a match in
    it. ``constants`` are extra columns with one value each. Waiting and stalled rows are written below ``rows_folder``.
    Joined rows are written to their table if ``written``, and yielded otherwise. Rows of more than ``most_row_bytes``
    are invalid: the joins have no room for them. ``routed`` finds the task that owns a row, where tasks also read the
    rows of others. ``shedding`` is set under a latency goal.
    """

    batch: int
    at: float
    phase: int
    source: pa.Schema
    rules: tuple[RowRule, ...]
    tables: Mapping[str, TableLayout]
    entering: tuple[pa.Schema, ...]
    labels: tuple[str, ...]
    versions: tuple[int, ...]
    retry_s: tuple[float, ...]
    rows_folder: str
    constants: Mapping[str, str] = field(default_factory=dict)
    written: bool = True
    most_row_bytes: int | None = None
    routed: RoutedKeys | None = None
    shedding: TaskShedding | None = None

    @property
    def prefix(self) -> str:
        """Prefix of file names."""
        return f"{self.batch:012d}-{self.phase}"


class BatchTask:
    """Task for one part of a phase, Spark's partition ``number``. On failure it removes all of its files."""

    def __init__(self, plan: TaskPlan, chain: Chain | ChangeChain, number: int = 0) -> None:
        self._plan, self._number = plan, number
        self._chain = chain
        self._accounts = Accounts()
        self._writers = {name: TableWriter(layout, plan.prefix) for name, layout in plan.tables.items()}
        self._waiting = WaitingWriter(plan)
        self._counts: dict[str, int] = {}
        self._peaks: dict[str, int] = {}
        self._arrivals: dict[str, int] = {}

    def run(self, inputs: Iterable[pa.RecordBatch | Split]) -> Iterator[pa.RecordBatch]:
        """Process all input rows; yield the joined ones if the plan does not write them.

        Batches have the source's columns by position, then the text of unreadable rows and, under a latency goal, the
        arrival time in milliseconds.
        """
        try:
            for stopped in self._stopped(inputs):
                yield from self._end(stopped)
        except BaseException:
            self.abandon()
            raise

    def work(self) -> TaskResult:
        """Close all files, and return the result; call it after `run` is exhausted."""
        outcomes, stalled_rows = self._accounts.outcomes()
        try:
            files = {name: writer.close() for name, writer in self._writers.items()}
            waiting, stalled = self._waiting.close()
        except BaseException:
            self.abandon()
            raise
        rows, counts, peaks, arrivals = self._accounts.rows, self._counts, self._peaks, self._arrivals
        return TaskResult(rows, outcomes, files, waiting, stalled, stalled_rows, counts, peaks, arrivals)

    def abandon(self) -> None:
        """Remove all files written so far."""
        for writer in self._writers.values():
            writer.abandon()
        self._waiting.abandon()

    def _stopped(self, inputs: Iterable[pa.RecordBatch | Split]) -> Iterator[Stopped]:
        shedding = self._plan.shedding
        if shedding is not None:
            splits: list[Split] = []
            for batch, arrived in shedding.partition(_rows_of(inputs, splits), self._number):
                yield from self._enter_spark_s(batch, arrived)
            inputs = splits
        for each in inputs:
            if isinstance(each, SourceSplit):
                yield from self._read_source(each)
            elif isinstance(each, RowsSplit):
                yield from self._resume(each)
            elif isinstance(each, ArchiveSplit):
                yield from self._repair(each)
            else:
                yield from self._enter_spark_s(each, None)
        yield from self._chain.flush()

    def _enter_spark_s(self, batch: pa.RecordBatch, arrived: Arrived | None) -> Iterator[Stopped]:
        raw = batch.column(batch.num_columns - 1)
        yield from self._convert(batch.remove_column(batch.num_columns - 1), raw, arrived)

    def _repair(self, split: ArchiveSplit) -> Iterator[Stopped]:
        """Process archived rows as if they came now."""
        found = split.read(self._plan.source)
        while True:
            try:
                batch = next(found, None)
            except (pa.ArrowException, OSError) as error:  # a copied file, never read before, is damaged
                names = pa.record_batch({"file": [file.path for file in split.files]})
                if not split.owner:
                    self._refuse_all(names, f"the rest of the file cannot be read: {error}")
                return
            if batch is None:
                return
            rows, arrived = batch[0], ArrivedRows(batch[1], batch[2], repaired=True)
            if split.owner is not None and self._plan.routed is not None:
                mine = own_rows(rows, split, self._plan.routed, arrived)
                rows, arrived = rows.filter(pa.array(mine)), arrived.where(mine)
            yield from self._enter(rows, None, arrived)

    def _read_source(self, split: SourceSplit) -> Iterator[Stopped]:
        names = self._plan.source.names
        shedding = self._plan.shedding
        if shedding is not None and shedding.sheds_all(split):
            if not archives(split, self._plan.routed):
                return
            if can_copy(split, self._plan.tables["shed"], shedding):
                self._shed_file(shedding, split)
                return
        arrived = None if shedding is None else shedding.split(split)
        batches, begin = split.read(names if split.reason is None else None), 0
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                if split.tells:
                    self._refuse_rest(split, error)
                return
            if batch is None:
                return
            if split.reason is not None:
                self._refuse_all(batch, split.reason)
            else:
                own = None if arrived is None else arrived.slice(begin, batch.num_rows)
                yield from self._convert(batch.select(names), None, own, split)
                begin += batch.num_rows

    def _convert(
        self, batch: pa.RecordBatch, raw: pa.Array | None, arrived: Arrived | None, split: SourceSplit | None = None
    ) -> Iterator[Stopped]:
        """Cast rows to the source's types, and keep those that the task owns. A row for which this fails is invalid."""

        def fit(begin: int, part: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None, Arrived | None]:
            rows = convert_batch(part, self._plan.source)
            text = None if raw is None else raw.slice(begin, part.num_rows)
            own = None if arrived is None else arrived.slice(begin, part.num_rows)
            if split is not None and split.owner is not None and self._plan.routed is not None:
                mine = own_rows(rows, split, self._plan.routed, own)
                rows, own = rows.filter(pa.array(mine)), None if own is None else own.where(mine)
            return rows, text, own

        for _, part, fitting in in_parts(batch, fit):
            if not isinstance(fitting, Exception):
                yield from self._enter(*fitting)
            elif split is None or split.tells:
                self._refuse_all(part, failure_of(fitting))

    def _shed_file(self, shedding: TaskShedding, split: SourceSplit) -> None:
        """Copy a source file to the archive, unread; the repair finds its invalid rows."""
        assert split.part is not None
        self._accounts.enter_and_end("shed", split.rows)
        bounds = None if shedding.valued is None else shedding.valued.bounds_of_any(split.rows)
        self._count_missing(bounds, split.rows, shedding.came_ms(split))
        try:
            self._writers["shed"].copy(
                Path(split.path),
                split.rows,
                (shedding.pipeline, str(self._plan.batch)),
                part=split.part,
                came_ms=shedding.came_ms(split),
            )
        except OSError as error:
            require_readable(split.path, error)
            raise

    def _refuse_all(self, rows: pa.RecordBatch, reason: str) -> None:
        self._refuse(rows, None, pa.repeat(reason, rows.num_rows), self._accounts.enter(rows.num_rows))

    def _refuse_rest(self, split: SourceSplit, error: Exception) -> None:
        """Put one row with the file's name into the quarantine for the unreadable rest of the file."""
        require_readable(split.path, error)
        if split.stop:
            raise PipelineError(
                f"the source's file {split.path} cannot be read: {error}. Replace it and start the pipeline again, or "
                "send such files to the quarantine (on_schema_change: quarantine)."
            ) from error
        groups = f", row groups {', '.join(map(str, split.row_groups))}" if split.row_groups else ""
        self._refuse_all(
            pa.record_batch({"file": [split.path]}), f"the rest of the file{groups} cannot be read: {error}"
        )

    def _enter(self, rows: pa.RecordBatch, raw: pa.Array | None, arrived: Arrived | None) -> Iterator[Stopped]:
        """Check source rows: valid ones go on or are shed, invalid ones go to the quarantine."""
        plan, numbers = self._plan, self._accounts.enter(rows.num_rows)
        reasons = why_invalid(rows, raw, plan.rules, plan.most_row_bytes)
        if reasons.null_count < len(reasons):
            broken = reasons.is_valid()
            at = broken.to_numpy(zero_copy_only=False)
            text = None if raw is None else raw.filter(broken)
            self._refuse(rows.filter(broken), text, reasons.filter(broken), numbers[at])
            rows, numbers = rows.filter(pc.invert(broken)), numbers[~at]
            arrived = None if arrived is None else arrived.where(~at)
        if arrived is not None:
            rows, numbers, arrived = self._not_shed(rows, numbers, arrived)
        if rows.num_rows:
            yield from self._chain.push(self._carried(rows, numbers, arrived))

    def _not_shed(
        self, rows: pa.RecordBatch, numbers: Int64s, arrived: Arrived
    ) -> tuple[pa.RecordBatch, Int64s, Arrived]:
        """Write shed rows to the archive, and return the kept ones."""
        plan, shedding = self._plan, self._plan.shedding
        assert shedding is not None
        if isinstance(arrived, ArrivedRows) and arrived.kept is not None and not arrived.kept.mask.all():
            kept = arrived.kept.mask
            shed, fate = rows.filter(pa.array(~kept)), arrived.where(~kept)
            self._accounts.end("shed", numbers[~kept])
            bounds = None if shedding.valued is None else shedding.valued.bounds(shed)
            self._count_missing(bounds, shed.num_rows, int(fate.came_ms.min()))
            schema, batch = plan.tables["shed"].schema, plan.batch
            self._writers["shed"].write(
                archived_rows(shed, fate.came_ms, fate.ids, pipeline=shedding.pipeline, batch=batch, schema=schema)
            )
            rows, numbers, arrived = rows.filter(pa.array(kept)), numbers[kept], arrived.where(kept)
        for tick, came in arrived.by_arrival(shedding.tick_ms).items():
            self._arrivals[tick] = self._arrivals.get(tick, 0) + came
        return rows, numbers, arrived

    def _count_missing(self, bounds: tuple[int, int] | None, rows: int, oldest_ms: int) -> None:
        """Count the results missing for shed rows, within ``bounds`` if known, and track the age of the oldest row."""
        waited_ms = int(self._plan.at * 1000) - oldest_ms
        self._peaks[SHED_AGE_MS] = max(waited_ms, self._peaks.get(SHED_AGE_MS, 0))
        found = {"unvalued": rows} if bounds is None else {"missing_low": bounds[0], "missing_high": bounds[1]}
        for name, count in found.items():
            self._counts[name] = self._counts.get(name, 0) + count

    def _carried(self, rows: pa.RecordBatch, numbers: Int64s, arrived: Arrived | None) -> pa.RecordBatch:
        """Append the pipeline's internal columns to rows."""
        since = pa.repeat(pa.scalar(int(self._plan.at * 1000), pa.int64()), rows.num_rows)
        own = {ROW: pa.array(numbers), SINCE: since}
        constants = {name: pa.repeat(value, rows.num_rows) for name, value in self._plan.constants.items()}
        columns = [*rows.columns, *own.values(), *constants.values()]
        names = [*rows.schema.names, *own, *constants]
        shedding = self._plan.shedding
        if isinstance(arrived, ArrivedRows) and shedding is not None and shedding.weighted:
            design = None if shedding.decided is None else shedding.decided.design
            columns += arrived.sample_columns(self._plan.batch, design)
            names += CARRIED_SAMPLE.names
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _resume(self, split: RowsSplit) -> Iterator[Stopped]:
        """Resume waiting or stalled rows at their link; results of one source row share a number."""
        numbering = self._accounts.origin()
        for file, batch, first in split.read():
            schema = self._entering(file, batch.schema)
            at = schema.get_field_index(ROW)
            rows = convert_batch(batch, schema).set_column(
                at, schema.field(at), pa.array(numbering.numbers(batch.column(ROW).to_numpy()))
            )
            if first is not None and isinstance(self._chain, Chain):
                yield from self._chain.resume(rows, file.link, first)
            else:
                yield from self._chain.push(rows, file.link)

    def _entering(self, file: WaitingFile, found: pa.Schema) -> pa.Schema:
        """Return the columns of rows that enter a link; refuse waiting rows with other columns."""
        wanted = self._plan.entering[file.link].names if file.link < len(self._plan.entering) else []
        if found.names != wanted:
            raise PipelineError(
                f"{file.rows} rows wait before step {file.link + 1} with the columns ({', '.join(found.names)}), but "
                f"that step now takes ({', '.join(wanted)}). Run the unchanged pipeline until no rows wait, then "
                "change it."
            )
        return self._plan.entering[file.link]

    def _refuse(self, rows: pa.RecordBatch, raw: pa.Array | None, reasons: pa.Array, numbers: Int64s) -> None:
        self._writers["invalid"].write(invalid_rows(self._plan.batch, rows, raw, reasons))
        self._accounts.end("invalid", numbers)

    def _end(self, stopped: Stopped) -> Iterator[pa.RecordBatch]:
        """Write rows to the place of their outcome."""
        plan, rows = self._plan, stopped.rows
        numbers = rows.column(ROW).to_numpy()
        if stopped.outcome == "joined":
            self._accounts.end("joined", numbers)
            own = [name for name in rows.schema.names if not name.startswith(RESERVED)]
            if not plan.written:
                yield rows.select(own)
            else:
                self._writers["joined"].write(convert_batch(rows.select(own), plan.tables["joined"].schema))
        elif stopped.outcome == "silent":
            self._accounts.end("joined", numbers)
        elif stopped.outcome in ("unmatched", "duplicate"):
            self._stop(stopped.rows, stopped.outcome, stopped.link)
        elif stopped.outcome == "waiting":
            overdue = _overdue(rows, plan.at - plan.retry_s[stopped.link])
            if overdue is not None:
                self._stop(rows.filter(overdue), "unmatched", stopped.link)
                rows = rows.filter(pc.invert(overdue))
            self._keep(rows, stopped)
        else:
            self._keep(rows, stopped)

    def _keep(self, rows: pa.RecordBatch, stopped: Stopped) -> None:
        """Write rows that go on later: in the next phase or a later batch."""
        if rows.num_rows:
            outcome = "stalled" if stopped.outcome == "stalled" else "pending"
            self._accounts.end(outcome, rows.column(ROW).to_numpy())
            self._waiting.write(rows, stopped)

    def _stop(self, rows: pa.RecordBatch, outcome: str, link: int) -> None:
        plan = self._plan
        self._accounts.end(outcome, rows.column(ROW).to_numpy())
        if outcome not in self._writers or not rows.num_rows:
            return
        label, schema = plan.labels[link], plan.tables[outcome].schema
        constants = [pa.repeat(label, rows.num_rows), pa.repeat(pa.scalar(plan.batch, pa.int64()), rows.num_rows)]
        columns = [rows.column(name) for name in plan.source.names]
        named = pa.RecordBatch.from_arrays([*columns, *constants], names=schema.names)
        self._writers[outcome].write(convert_batch(named, schema))


def _rows_of(inputs: Iterable[pa.RecordBatch | Split], splits: list[Split]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark has read, and collect the splits among them in ``splits``."""
    for each in inputs:
        if isinstance(each, pa.RecordBatch):
            yield each
        else:
            splits.append(each)


def _overdue(rows: pa.RecordBatch, since_s: float) -> pa.BooleanArray | None:
    """Return a mask of the rows that came at or before ``since_s``, or None if none did."""
    early = rows.column(SINCE).to_numpy() <= since_s * 1000
    return pa.array(early) if np.any(early) else None
