"""LocalWorkers: tasks of a pipeline that run one after the other in this process, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.pipelines.batch.workers import BatchInput, Workers
from semistream.pipelines.inputs.parquet_files import parquet_inputs
from semistream.pipelines.inputs.splits import SourceSplit, Split, share_among_owners, share_out
from semistream.pipelines.ledger.entries import Plan, TaskResult
from semistream.pipelines.overload.task_shedding import TaskShedding, summarize_inputs
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.source_spec import FileSource
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.task.worker_joins import WORKER_JOINS
from semistream.pipelines.task.worker_task import WORK, PipelineTask, read_work, run_task
from semistream.pipelines.updates.parquet_updates import read_parquet_updates
from semistream.pipelines.updates.relation_updates import RelationUpdates
from semistream.pipelines.updates.update_reader import TopicRange, UpdateReader
from semistream.shedding import STRATEGIES, PartSummary
from tests.simulation.world import Kill, World

_ATTEMPTS = 4  # of a task, as on Spark


@dataclass(frozen=True)
class LocalWorkers(Workers):
    """Workers that read Parquet files. ``slots`` is the number of tasks of a phase; ``kill`` strikes one of them."""

    world: World
    spec: PipelineSpec
    slots: int
    updates: Sequence[RelationUpdates]
    kill: Kill | None = None
    batch: tuple[str, ...] = ()

    def with_batch(self, files: Sequence[str]) -> LocalWorkers:
        """Return these workers with the files of a batch of the source."""
        return replace(self, batch=tuple(files))

    def update_relations(self) -> None:
        for updates in self.updates:
            updates.apply(LocalReader(self.world))

    def files(self, source_batch: int) -> list[str]:  # noqa: ARG002
        return sorted(self.batch)

    def read(self, plan: Plan) -> BatchInput:
        source = self.spec.source
        assert isinstance(source, FileSource)
        if not plan.files:
            return BatchInput()
        stop = source.on_schema_change == "stop" or any(step.changes is not None for step in self.spec.steps)
        return BatchInput(None, parquet_inputs(plan.files, source.arrow_schema, self.slots, stop=stop).splits)

    def source_rows(self, given: BatchInput, plan: Plan) -> LocalRows:  # noqa: ARG002
        return LocalRows(given.splits, self.slots)

    def run_phase(self, task: PipelineTask, rows: Any, splits: Sequence[Split]) -> TaskResult:
        assert rows is None
        self.world.run_orphans()
        owners = task.plan.routed
        shared = share_out(splits, self.slots) if owners is None else share_among_owners(splits, owners.num_parts)
        task = replace(task, splits=tuple(shared))
        kill, results = self.kill, list[TaskResult]()
        for number in range(len(shared)):
            struck = kill is not None and kill.step % len(shared) == number
            if struck and kill.role == "driver of tasks":
                self.world.orphans += [partial(_run, task, left, []) for left in range(number, len(shared))]
                self.world.die()
            for attempt in range(_ATTEMPTS):
                found: list[TaskResult] = []
                if self.world.run(
                    "worker", kill if struck and not attempt else None, partial(_run, task, number, found)
                ):
                    results += found
                    break
                forget_workers()
        return TaskResult.total(results)


def _run(task: PipelineTask, number: int, found: list[TaskResult]) -> None:
    """Run a task, and add its report to those ``found``."""
    for report in run_task(task, number, iter([pa.record_batch({"share": [number]})])):
        found += [read_work(each) for each in report.column(WORK).to_pylist()]


@dataclass(frozen=True)
class LocalRows:
    """Rows of a batch as shedding sees them; implements `SourceRows`."""

    splits: Sequence[SourceSplit]
    slots: int
    through_spark = False

    def count_by_offsets(self) -> int | None:
        """Return None: files have no offsets."""
        return None

    def summarize(self, shedding: TaskShedding, strategy: str, splits: Sequence[Split]) -> list[PartSummary]:
        """Summarize each part of the batch for a shedding strategy."""
        found: list[PartSummary] = []
        for number, share in enumerate(share_out(splits, self.slots)):
            own = [split for split in share if isinstance(split, SourceSplit)]
            found += summarize_inputs(shedding, STRATEGIES[strategy](), own, number)
        return found


@dataclass(frozen=True)
class LocalReader(UpdateReader):
    """Reader of Parquet files with updates."""

    world: World

    def read_files(self, spec: UpdatesSpec, columns: Mapping[str, str], files: Sequence[Path]) -> pa.Table:  # noqa: ARG002
        if self.world.simulates:  # what comes after the last batch would wait for another
            with self.world.outside():
                self.world.while_reading_updates()
        return read_parquet_updates(files, columns)

    def ranges(self, spec: UpdatesSpec) -> dict[int, TopicRange]:
        raise NotImplementedError(f"{spec.topic} is a topic; simulated updates are files")

    def read_messages(self, spec: UpdatesSpec, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        raise NotImplementedError

    def parse_messages(
        self, spec: UpdatesSpec, columns: Mapping[str, str], key: Sequence[str], messages: Path
    ) -> pa.Table:
        raise NotImplementedError


def forget_workers() -> None:
    """Let this process forget what a dead worker knew."""
    while WORKER_JOINS._by_plan:
        WORKER_JOINS._by_plan.popitem()[1].close()
