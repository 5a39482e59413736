"""Pipelines whose every file is in one folder: what they need, and how they run to the end of their source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from semistream.errors import PipelineError
from semistream.pipelines.batch.batch_runner import BatchRunner
from semistream.pipelines.batch.housekeeping import vacuum_pipeline
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import open_tables
from semistream.pipelines.plan.step_plans import plan_steps
from semistream.pipelines.spec.yaml_file import make_spec
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.updates.relation_updates import all_updates
from semistream.relation import Relation
from tests.crash.cuts import Tell, read_tree, scratch
from tests.crash.disk import Disk
from tests.simulation.local_driver import LatePublisher
from tests.simulation.local_workers import LocalWorkers, forget_workers
from tests.simulation.world import World
from tests.spark.pipelines.warehouse import read_table

Row = tuple[Any, ...]
SCHEMA = pa.schema([("id", pa.int64()), ("product", pa.int64()), ("customer", pa.string()), ("quantity", pa.int32())])


class PipelineScenario(ABC):
    """A pipeline over files of orders, one for each batch; the last fact told is the number of batches published."""

    name: str
    format: str
    files: Sequence[Sequence[Row]]
    tables: tuple[str, ...]

    def __init__(self) -> None:
        ids = [0, 2, 4, 6]
        with scratch() as folder:
            (folder / "orders").mkdir()
            (folder / "updates").mkdir()
            products = pa.table({"id": ids, "name": [f"p{i}" for i in ids]})
            Relation.build(products, folder / "products", key="id", page_bytes=512)
            for number, rows in enumerate(self.files):
                columns = [list(column) for column in zip(*rows, strict=True)]
                pq.write_table(pa.table(columns, SCHEMA.names).cast(SCHEMA), folder / "orders" / f"{number}.parquet")
            self.disk = Disk.holding(read_tree(folder))

    def spec(self, folder: Path) -> dict[str, Any]:
        """The pipeline, without its steps."""
        columns = {"id": "bigint", "product": "bigint", "customer": "string", "quantity": "int"}
        rules = [{"column": "quantity", "min": 1}]
        return {
            "name": "orders",
            "source": {"format": "parquet", "path": str(folder / "orders"), "schema": columns, "rules": rules},
            **{name: {"path": str(folder / name), "format": self.format} for name in self.tables},
            "checkpoint": str(folder / "checkpoint"),
            "memory": "32MB",
            "every": "100ms",
        }

    @abstractmethod
    def drive(self, folder: Path, runner: BatchRunner, workers: LocalWorkers, tell: Tell, batches: int) -> None:
        """Run the first batches."""

    @abstractmethod
    def look(self, folder: Path, told: Sequence[str]) -> None:
        """Check what was told, after the recovery and before any other batch runs."""

    def run(self, folder: Path, tell: Tell, told: Sequence[str] | None = None) -> None:
        """Run all batches, or recover what was ``told`` and go on to the end of the next batch, at least the second.

        In half of the recoveries, `semistream vacuum` comes first.
        """
        if told is not None and len([*folder.rglob("*")]) % 2:
            self._vacuum(folder)
        with self._opened(folder) as (runner, workers):
            runner.recover()
            self.look(folder, told or ())
            self.drive(folder, runner, workers, tell, len(self.files) if told is None else self.due(told))
            runner.end()

    def _vacuum(self, folder: Path) -> None:
        file = folder.parent / "pipeline.yaml"
        file.write_text(yaml.safe_dump(self.spec(folder)))
        try:
            vacuum_pipeline(file)
        except PipelineError as error:
            assert "which mends a log" in str(error), error  # noqa: PT017

    def due(self, told: Sequence[str]) -> int:
        """Return the number of batches to run after a recovery."""
        return min(max(len(published(told)) + 1, 2), len(self.files))

    @contextmanager
    def _opened(self, folder: Path) -> Iterator[tuple[BatchRunner, LocalWorkers]]:
        spec, place = make_spec(self.spec(folder)), Place(folder)
        steps = plan_steps(spec, SCHEMA, 1)
        with Ledger.open(spec.checkpoint, spec.name) as ledger:
            tables = open_tables(spec, steps.source, steps.joined, Owner(spec.name, ledger.token), {})
            workers = LocalWorkers(place, spec, 1, all_updates(spec.steps, ledger, ledger.writer))
            try:
                yield (
                    BatchRunner(spec, steps, workers, tables, ledger, lambda _: None, place.clock, LatePublisher()),
                    workers,
                )
            finally:
                forget_workers()

    def run_file(self, folder: Path, number: int, runner: BatchRunner, workers: LocalWorkers) -> None:
        """Run the batch of a file, if it has not run."""
        runner.run(number, workers.with_batch([str(folder / "orders" / f"{number}.parquet")]))

    def read(self, folder: Path) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all tables."""
        return {name: read_table(folder / name).to_pylist() for name in self.tables}


def published(told: Sequence[str]) -> set[int]:
    """Return the numbers of the batches that were told to be published."""
    return {int(fact.partition(" ")[0]) for fact in told if " published" in fact}


class Place(World):
    """A folder and a clock, without kills."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.parent / "beside", seed=0)
        self.folder = folder
