"""Task of a pipeline in a worker: join rows, write them to their tables, and report to the driver."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import PipelineError
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.inputs.splits import Split
from semistream.pipelines.ledger.entries import TaskResult, WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.steps.chain import Chain, Link
from semistream.pipelines.steps.snapshot_changes import MET, UPSERTS, ChangeChain, ChangesPlan, MetRows
from semistream.pipelines.tables.writer import TableLayout, TableWriter
from semistream.pipelines.task.batch_task import BatchTask, TaskPlan
from semistream.pipelines.task.worker_joins import WORKER_JOINS, RoutedJoin, WorkerJoin, WorkerJoinCounts

WORK = "__work"
"""Column with the `TaskResult` of a task, as JSON."""
WORK_SCHEMA = f"{WORK} binary"


@dataclass(frozen=True)
class PipelineTask:
    """A phase of a batch, as sent to its tasks.

    ``plan`` has the versions of R that the whole phase joins with, ``joins`` the joins with their links. ``splits``
    lists, by share, the inputs that tasks read themselves. With ``defers``, rows may wait to share a pass over R.
    ``changes`` compares snapshots. ``given_out`` is the schema of joined rows that return to Spark; None if tasks
    write them.
    """

    plan: TaskPlan
    joins: tuple[tuple[JoinPlan, Link], ...]
    splits: tuple[tuple[Split, ...], ...]
    defers: bool = False
    changes: ChangesPlan | None = None
    given_out: pa.Schema | None = None


def run_task(task: PipelineTask, partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send the rows of a partition through the joins to their tables; the last row yielded is the task's report.

    A batch has the source's columns and, last, the number of a share of the splits. A partition without rows yields
    nothing. Each attempt writes files of its own, and only those of the attempt whose report is kept are committed.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    with ExitStack() as lent:
        lending = [
            WORKER_JOINS.lend(plan, version) for (plan, _), version in zip(task.joins, task.plan.versions, strict=True)
        ]
        owned = [lent.enter_context(worker_join) for worker_join in lending]
        joins = [RoutedJoin(worker_join) if worker_join.plan.cuts else worker_join.operator(0) for worker_join in owned]
        before = [worker_join.counts for worker_join in owned]
        if task.changes is not None:
            work = _class_rows(task, task.changes, owned[0], read_inputs(task.splits, first, batches))
        else:
            chain = Chain([(link, join) for (_, link), join in zip(task.joins, joins, strict=True)], defers=task.defers)
            run = BatchTask(task.plan, chain, partition)
            for joined in run.run(read_inputs(task.splits, first, batches)):
                yield _given_out(task, joined)
            work = run.work()
        _count(work, owned, before)
    reached("before report")
    yield _report(task, work)


def _class_rows(
    task: PipelineTask, changes: ChangesPlan, worker_join: WorkerJoin, inputs: Iterator[pa.RecordBatch | Split]
) -> TaskResult:
    """Compare the rows of a snapshot with R, and write them to their tables.

    New and changed rows are also written aside, for R's next version, with flags for the rows of R that were matched.
    """
    plan, folder = task.plan, Path(task.plan.rows_folder)
    upserts = TableWriter(TableLayout(str(folder), plan.source), f"{plan.prefix}-{UPSERTS}")
    join, met = worker_join.operator(0), MetRows(worker_join.relation)
    join.watch_joined(met.meet)
    chain = ChangeChain(changes, join, plan.source, upserts)
    run = BatchTask(plan, chain)
    try:
        deque(run.run(inputs), maxlen=0)
        work = run.work()
        work.files[UPSERTS] = upserts.close()
    except BaseException:
        upserts.abandon()
        raise
    finally:
        join.watch_joined(None)
    name = f"{plan.prefix}-{MET}-{uuid.uuid4().hex}.npy"
    met.save(folder / name)
    work.files[MET] = [WrittenFile(name, met.bits.size, 0)]
    work.counts.update(chain.counts)
    return work


def write_partition(layout: TableLayout, prefix: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write joined rows that returned from Spark, and add the files to the reports of their tasks.

    A batch has the table's columns by position, and then the report column: null, except in a report's own row.
    """
    writer = TableWriter(layout, prefix)
    works: list[TaskResult] = []
    try:
        for batch in batches:
            reports = batch.column(batch.num_columns - 1)
            works += [read_work(content) for content in reports.drop_null().to_pylist()]
            rows = batch.remove_column(batch.num_columns - 1)
            if reports.null_count < len(reports):
                rows = rows.filter(reports.is_null())
            if rows.num_rows:
                writer.write(convert_batch(rows, layout.schema))
        files = writer.close()
    except BaseException:
        writer.abandon()
        raise
    if works or files:
        yield _packed(TaskResult.total([*works, TaskResult(files={"joined": files})]))


def read_work(content: bytes) -> TaskResult:
    """Read a task's report; raise `PipelineError` if it is none."""
    try:
        return TaskResult.from_json(content)
    except ValueError as error:
        raise PipelineError(
            f"a task's report of {len(content)} bytes cannot be read ({error}). Nothing of the batch was committed. "
            "Run the pipeline again, with the same version of semistream on the driver and all workers."
        ) from None


def read_inputs(
    splits: Sequence[Sequence[Split]], first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch | Split]:
    """Yield the inputs of a task: rows from Spark, and the splits of the shares numbered in the last column."""
    for batch in _all(first, others):
        numbers = batch.column(batch.num_columns - 1)
        for number in numbers.drop_null().to_pylist():
            yield from splits[number]
        if batch.num_columns > 1 and numbers.null_count:
            rows = batch.remove_column(batch.num_columns - 1)
            yield rows if numbers.null_count == len(numbers) else rows.filter(pc.is_null(numbers))


def _all(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _given_out(task: PipelineTask, joined: pa.RecordBatch) -> pa.RecordBatch:
    assert task.given_out is not None
    rows = convert_batch(joined, task.given_out)
    return rows.append_column(WORK, pa.nulls(rows.num_rows, pa.binary()))


def _report(task: PipelineTask, work: TaskResult) -> pa.RecordBatch:
    report = _packed(work)
    if task.given_out is None:
        return report
    nothing = [pa.nulls(1, field.type) for field in task.given_out]
    return pa.RecordBatch.from_arrays([*nothing, report.column(0)], names=[*task.given_out.names, WORK])


def _packed(work: TaskResult) -> pa.RecordBatch:
    return pa.record_batch({WORK: pa.array([work.to_json()], pa.binary())})


def _count(work: TaskResult, joins: Sequence[WorkerJoin], before: Sequence[WorkerJoinCounts]) -> None:
    """Add the joins' counts since ``before``, and their peak memory, to the result of a task."""
    for worker_join, then in zip(joins, before, strict=True):
        now = worker_join.counts
        for name in ("rows_in", "cache_hits", "bytes_read"):
            work.counts[f"join_{name}"] = work.counts.get(f"join_{name}", 0) + getattr(now, name) - getattr(then, name)
        work.peaks["join_bytes"] = work.peaks.get("join_bytes", 0) + now.peak_bytes
