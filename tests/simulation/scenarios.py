"""Pipelines with oracles, for simulated histories: what may come, and how each is driven."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.relation import Relation
from tests.faults.backlog import batches_done
from tests.faults.orders_scenario import OrdersScenario
from tests.spark.pipelines.warehouse import put, read_table

GARBAGE, LACKING, WIDER = "garbage", "lacking", "wider"
POISONS = (GARBAGE, LACKING, WIDER)


class SimulatedOrders(OrdersScenario):
    """Orders with files that are not what the source promised, and a second pipeline over the same products."""

    def __init__(self, folder: Path, seed: int, latency: str | None = None) -> None:
        super().__init__(folder, seed, latency)
        self._poisoned: Counter[str] = Counter()

    def spec(self, retry_for: str = "1 day") -> dict[str, Any]:
        """The pipeline."""
        spec = super().spec(retry_for)
        return {**spec, "source": {**spec["source"], "on_schema_change": "quarantine"}}

    def put_poison(self, kind: str) -> None:
        """A file that cannot be read, lacks a column, or has one of another type."""
        path = self.folder / "orders" / f"{len(self._sent):05d}-{self._poisoned.total():05d}.parquet"
        if kind == GARBAGE:
            path.write_bytes(b"PAR1 no more than that")
            self._poisoned["the file cannot be read"] += 1
            return
        columns = {"id": [1, 2], "product": [2, 4], "customer": ["a", "b"], "quantity": [1, 1], "amount": [1.0, 2.0]}
        table = pa.table(columns)  # integers of 64 bits
        reason = "the file's column 'quantity' is int64, the source's int32"
        if kind == LACKING:
            table = table.drop_columns(["quantity"])
            reason = "the file has no column 'quantity'"
        put(table, path)
        self._poisoned[reason] += 2

    def _check_quarantine(self, broken: int) -> None:
        found = Counter(row["reason"].partition(":")[0] for row in self._table("quarantine").to_pylist())
        expected = {"quantity is below 1": broken, "a row without its key (id)": self._updates, **self._poisoned}
        self._same("the quarantine has each bad row once", found, Counter(expected))

    @property
    def waiting_files(self) -> int:
        """Files of the source in no batch that has ended."""
        return len(list((self.folder / "orders").glob("[!_]*"))) - batches_done(self.folder)


class AuditScenario:
    """A second pipeline over the orders and products of a first one. It updates nothing, and dies apart from it."""

    def __init__(self, orders: SimulatedOrders) -> None:
        self._orders = orders

    def spec(self) -> dict[str, Any]:
        """The pipeline."""
        first, folder = self._orders.spec(), self._orders.folder
        (_, _, step) = first["steps"]
        return {
            "name": "audit",
            "source": {**first["source"], "rules": []},
            "steps": [{"join": {"relation": step["join"]["relation"], "on": {"product": "id"}}}],
            "sink": {"path": str(folder / "audit" / "sink")},
            "unmatched": {"path": str(folder / "audit" / "unmatched"), "format": "parquet"},
            "quarantine": {"path": str(folder / "audit" / "quarantine"), "format": "parquet"},
            "checkpoint": str(folder / "audit" / "checkpoint"),
            "memory": "32MB",
        }

    def check(self) -> None:
        """Each order ends once for each file that has it, also a broken or repeated one."""
        folder, sent = self._orders.folder / "audit", self._orders._sent
        sink, unmatched = read_table(folder / "sink"), read_table(folder / "unmatched")
        ids = [table.column("id").to_pylist() if table.num_rows else [] for table in (sink, unmatched)]
        assert Counter(ids[0] + ids[1]) == Counter(row["id"] for rows in sent for row in rows)
        poisoned = sum(self._orders._poisoned.values())
        assert read_table(folder / "quarantine").num_rows == poisoned


def vacuum_relations(folder: Path) -> None:
    """Remove all versions of the relations but the current one, as another user of them may at any time."""
    for name in ("products", "keys", "seen", "last"):
        if (folder / name / "CURRENT").exists():
            Relation.open(folder / name).vacuum(1)
