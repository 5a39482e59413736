"""Surrogate keys, duplicates, rows that wait for an update of R, bad rows and bad updates; to Delta or Parquet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.pipelines.batch.batch_runner import BatchRunner
from semistream.relation import Relation
from semistream.storage.local_files import sync_folder, whole_file
from tests.crash.cuts import Tell
from tests.crash.pipeline_scenario import PipelineScenario, published
from tests.simulation.local_workers import LocalWorkers
from tests.spark.pipelines.warehouse import read_table

_FILES = (  # of id, product, customer, quantity; products 3 and 5 come after the first batch, product 7 never does
    ((0, 0, "a", 1), (1, 2, "b", 2), (2, 3, "a", 3), (3, 7, "c", 1), (4, 0, "d", 0)),
    ((5, 4, "a", 2), (6, 5, "e", 1), (0, 0, "a", 1), (7, 2, "f", 0)),
    ((8, 7, "b", 1), (9, 6, "g", 2), (6, 5, "e", 1), (10, 3, "h", 5)),
)
_UPDATE = pa.table({"id": [3, 5, None], "name": ["p3", "p5", "?"]})


class OrdersPipeline(PipelineScenario):
    """It tells each batch that is published, with the surrogate keys so far."""

    files = _FILES
    tables = ("sink", "unmatched", "quarantine", "duplicates")

    def spec(self, folder: Path) -> dict[str, Any]:
        spec = super().spec(folder)
        join = {"relation": str(folder / "products"), "on": {"product": "id"}, "unmatched": "retry"}
        updates = {"format": "parquet", "path": str(folder / "updates")}
        keys = {"relation": str(folder / "keys"), "key": "customer", "into": "customer_key"}
        spec["steps"] = [
            {"surrogate_key": keys},
            {"deduplicate": {"relation": str(folder / "seen"), "key": "id"}},
            {"join": {**join, "retry_for": "7 days", "updates": updates}},
        ]
        if self.format == "parquet":
            spec["sink"]["partition_by"] = ["customer", "quantity"]
        return spec

    def drive(self, folder: Path, runner: BatchRunner, workers: LocalWorkers, tell: Tell, batches: int) -> None:
        for number in range(batches):
            update = folder / "updates" / "0.parquet"
            if number == 1 and not update.exists():
                with whole_file(update) as file:
                    pq.write_table(_UPDATE, file)
            sync_folder(update.parent)  # as whoever brings updates must
            self.run_file(folder, number, runner, workers)
            tell(f"{number} published, {json.dumps(_keys(folder))}")
            runner.catch_up()

    def look(self, folder: Path, told: Sequence[str]) -> None:
        ids = Counter(row["id"] for row in read_table(folder / "sink").to_pylist())
        for row in (row for number in published(told) for row in _FILES[number]):
            wanted = int(row[3] > 0 and row[1] % 2 == 0)
            assert ids[row[0]] >= wanted, f"row {row[0]} of a published batch is lost"

    def check(self, folder: Path, told: Sequence[str], tell: Tell) -> None:
        self.run(folder, tell, told)
        rows = [row for file in _FILES[: self.due(told)] for row in file]
        good = [row for row in rows if row[3]]
        found = self.read(folder)
        sink = Counter(
            (row["id"], row["product"], row["customer"], row["quantity"], row["name"]) for row in found["sink"]
        )
        assert sink == Counter({(*row, f"p{row[1]}") for row in good if row[1] != 7})
        assert found["unmatched"] == []
        repeated = Counter(row[0] for row in good) - Counter({row[0] for row in good})
        assert Counter(row["id"] for row in found["duplicates"]) == repeated
        reasons = Counter(row["reason"] for row in found["quarantine"])
        assert reasons == {"quantity is below 1": len(rows) - len(good), "a row without its key (id)": 1}
        keys = _keys(folder)
        assert sorted(keys.values()) == list(range(1, len(keys) + 1))
        assert set(keys) == {row[2] for row in good}
        assert {(row["customer"], row["customer_key"]) for row in found["sink"]} <= keys.items()
        for fact in told:
            assert json.loads(fact.partition(", ")[2]).items() <= keys.items(), "a surrogate key has changed"
        waiting = [pq.read_metadata(path).num_rows for path in (folder / "checkpoint" / "rows").iterdir()]
        assert sum(waiting) == sum(row[1] == 7 for row in good)


class DeltaOrders(OrdersPipeline):
    name, format = "orders-delta", "delta"


class ParquetOrders(OrdersPipeline):
    name, format = "orders-parquet", "parquet"


def _keys(folder: Path) -> dict[str, int]:
    rows = Relation.open(folder / "keys").scan().read_all().to_pylist()
    numbers = {row["customer"]: row["surrogate_key"] for row in rows}
    assert len(numbers) == len(rows)
    return numbers
