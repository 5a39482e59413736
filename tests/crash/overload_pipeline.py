"""Rows that are shed, kept in the archive, and repaired; to Delta or Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from semistream.pipelines.batch.batch_runner import BatchRunner
from tests.crash.cuts import Tell
from tests.crash.pipeline_scenario import PipelineScenario, published
from tests.simulation.local_workers import LocalWorkers
from tests.spark.pipelines.overloads import believe_slow
from tests.spark.pipelines.warehouse import read_table

_FILES = tuple(tuple((10 * n + i, i, f"c{i}", 1) for i in range(8)) for n in range(2))
_ROW_S = 5.0  # seconds that a row is believed to take, of the 30 s of a batch


class OverloadPipeline(PipelineScenario):
    """It tells each batch that is published, and the end of the repair."""

    files = _FILES
    tables = ("sink", "unmatched", "quarantine")

    def spec(self, folder: Path) -> dict[str, Any]:
        spec = super().spec(folder)
        spec["steps"] = [{"join": {"relation": str(folder / "products"), "on": {"product": "id"}}}]
        archive = {"path": str(folder / "archive"), "format": self.format}
        return {**spec, "overload": {"latency": "30s", "archive": archive}}

    def run(self, folder: Path, tell: Tell, told: Sequence[str] | None = None) -> None:
        with pytest.MonkeyPatch.context() as patch:
            believe_slow(_ROW_S, patch.setattr)
            super().run(folder, tell, told)

    def drive(self, folder: Path, runner: BatchRunner, workers: LocalWorkers, tell: Tell, batches: int) -> None:
        for number in range(batches):
            self.run_file(folder, number, runner, workers)
            tell(f"{number} published")
            runner.catch_up()
        if not (folder / "checkpoint" / "batches" / "000000000002.planned.json").exists():
            assert read_table(folder / "archive").num_rows > 0
        runner.reconcile(lambda: False)
        tell("repaired")

    def look(self, folder: Path, told: Sequence[str]) -> None:
        read = (*self.tables, "archive") if "repaired" not in told else self.tables
        ids = Counter(row["id"] for name in read for row in read_table(folder / name).to_pylist())
        for row in (row for number in published(told) for row in _FILES[number]):
            assert ids[row[0]] == 1, f"row {row[0]} of a published batch is there {ids[row[0]]} times"

    def check(self, folder: Path, told: Sequence[str], tell: Tell) -> None:
        self.run(folder, tell, told)
        found = self.read(folder)
        ids = Counter(row["id"] for name in ("sink", "unmatched") for row in found[name])
        assert ids == Counter(row[0] for file in _FILES for row in file)
        assert found["quarantine"] == []
        assert read_table(folder / "archive").num_rows == 0, "repaired rows are in the archive"


class DeltaOverload(OverloadPipeline):
    name, format = "overload-delta", "delta"


class ParquetOverload(OverloadPipeline):
    name, format = "overload-parquet", "parquet"
