"""Whole snapshots of a table, and the changes between them; to Delta."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semistream.pipelines.batch.batch_runner import BatchRunner
from semistream.relation import Relation
from tests.crash.cuts import Tell
from tests.crash.pipeline_scenario import SCHEMA, PipelineScenario, published
from tests.simulation.local_workers import LocalWorkers
from tests.spark.pipelines.warehouse import read_table

_FILES = (
    ((1, 0, "a", 1), (2, 0, "b", 1), (3, 0, "c", 1)),
    ((1, 0, "a", 2), (3, 0, "c", 1), (4, 2, "d", 1)),
    ((3, 0, "c", 1), (4, 2, "e", 1), (5, 4, "f", 1)),
)
_CHANGES = (
    [(1, "a", "inserted"), (2, "b", "inserted"), (3, "c", "inserted")],
    [(1, "a", "updated"), (2, "b", "deleted"), (4, "d", "inserted")],
    [(1, "a", "deleted"), (4, "e", "updated"), (5, "f", "inserted")],
)


class SnapshotPipeline(PipelineScenario):
    """It tells each snapshot whose changes are published."""

    name, format = "snapshots", "delta"
    files = _FILES
    tables = ("sink", "quarantine")

    def spec(self, folder: Path) -> dict[str, Any]:
        spec = super().spec(folder)
        spec["source"]["snapshots"] = "files"
        return {**spec, "steps": [{"changes": {"relation": str(folder / "last"), "key": "id"}}]}

    def drive(self, folder: Path, runner: BatchRunner, workers: LocalWorkers, tell: Tell, batches: int) -> None:
        for number in range(batches):
            self.run_file(folder, number, runner, workers)
            tell(f"{number} published")
            runner.catch_up()

    def look(self, folder: Path, told: Sequence[str]) -> None:
        lost = Counter(change for number in published(told) for change in _CHANGES[number]) - _changes(folder)
        assert not lost, f"changes are lost: {lost}"

    def check(self, folder: Path, told: Sequence[str], tell: Tell) -> None:
        self.run(folder, tell, told)
        due = self.due(told)
        assert _changes(folder) == Counter(change for changes in _CHANGES[:due] for change in changes)
        assert read_table(folder / "quarantine").num_rows == 0
        last = Relation.open(folder / "last").scan(SCHEMA.names).read_all().to_pylist()
        assert {tuple(row.values()) for row in last} == set(_FILES[due - 1])


def _changes(folder: Path) -> Counter[tuple[int, str, str]]:
    return Counter((row["id"], row["customer"], row["change"]) for row in read_table(folder / "sink").to_pylist())
