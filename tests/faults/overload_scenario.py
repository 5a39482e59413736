"""Orders of which most are shed and later repaired, and the expected tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from semistream.relation import Relation
from tests.spark.pipelines.warehouse import SCHEMA, orders, products, put, read_table

_ROWS = 400  # of a file, of which some 230 go on


class OverloadScenario:
    """A join and surrogate keys over a growing source; drivers assume a high cost of rows (`believe_slow`)."""

    def __init__(self, folder: Path, format: str = "delta") -> None:
        self.folder, self._format = folder, format
        self._sent: list[pa.Table] = []
        self._shown: dict[str, set[int]] = {}
        self._decided: dict[str, str] = {}
        self._archived: dict[int, set[int]] = {}
        (folder / "orders").mkdir(parents=True)
        Relation.build(products(), folder / "products", key="id", page_bytes=2048)

    def spec(self, retry_for: str = "1 day") -> dict[str, Any]:  # noqa: ARG002 (no rows wait)
        """The pipeline."""
        at = {name: str(self.folder / name) for name in ("orders", "products", "keys", "checkpoint")}
        tables = {
            name: {"format": self._format, "path": str(self.folder / name)}
            for name in ("sink", "unmatched", "quarantine", "archive")
        }
        archive = tables.pop("archive")
        return {
            "name": "orders",
            "source": {"format": "parquet", "path": at["orders"], "schema": SCHEMA},
            "steps": [
                {"surrogate_key": {"relation": at["keys"], "key": "customer", "into": "customer_key"}},
                {"join": {"relation": at["products"], "on": {"product": "id"}}},
            ],
            **tables,
            "checkpoint": at["checkpoint"],
            "memory": "32MB",
            "every": "100ms",
            "overload": {"latency": "30s", "archive": archive},
        }

    def grow(self) -> None:
        """One more file of orders."""
        number = len(self._sent)
        self._sent.append(orders(_ROWS, seed=number, first=number * _ROWS))
        put(self._sent[-1], self.folder / "orders" / f"{number:05d}.parquet")

    def look(self) -> None:
        """Check that no order is in a table twice, that none is lost, and that decisions are final."""
        found = Counter(self._ids("sink") + self._ids("unmatched"))
        twice = [order for order, times in found.items() if times > 1]
        assert not twice, f"orders {twice[:5]} came twice"
        for name in ("sink", "unmatched"):
            now = set(self._ids(name))
            lost = self._shown.get(name, set()) - now
            assert not lost, f"{name} has lost {sorted(lost)[:5]}"
            self._shown[name] = now
        for entry in (self.folder / "checkpoint" / "batches").glob("*.shed.json"):
            assert self._decided.setdefault(entry.name, entry.read_text()) == entry.read_text(), entry.name
        self._archived_once()

    def check(self) -> None:
        """All tables, after all rows were repaired."""
        self.look()
        stream, sink = pa.concat_tables(self._sent), self._table("sink")
        with duckdb.connect() as connection:
            connection.register("s", stream)
            connection.register("p", products())
            joined = connection.sql("SELECT s.*, p.name, p.price FROM s JOIN p ON product = p.id").fetchall()
            unmatched = connection.sql("SELECT id FROM s ANTI JOIN p ON product = p.id").fetchall()
        names = [*SCHEMA, "name", "price"]
        found = Counter(zip(*(sink.column(name).to_pylist() for name in names), strict=True))
        assert found == Counter(joined), "the sink is not what a run without shedding would have made"
        assert Counter(self._ids("unmatched")) == Counter(order for (order,) in unmatched)
        assert self._ids("archive") == []
        keys = Relation.open(self.folder / "keys").scan().read_all().to_pylist()
        numbers = {row["customer"]: row["surrogate_key"] for row in keys}
        assert sorted(numbers.values()) == list(range(1, len(numbers) + 1)), "surrogate keys are not 1, 2, 3 ..."
        told = set(zip(sink.column("customer").to_pylist(), sink.column("customer_key").to_pylist(), strict=True))
        assert told <= set(numbers.items()), "an order has another number than its customer"

    def archived(self) -> list[int]:
        """The orders in the archive."""
        return self._ids("archive")

    def _archived_once(self) -> None:
        """Check that no order enters the archive twice, or for a batch already committed."""
        table = self._table("archive")
        if not table.num_rows:
            return
        ids, batches = table.column("id").to_pylist(), table.column("batch_id").to_pylist()
        assert len(set(ids)) == len(ids), "an order was archived twice"
        for batch in set(batches):
            now = {order for order, own in zip(ids, batches, strict=True) if own == batch}
            more = now - self._archived.setdefault(batch, now)
            assert not more, f"batch {batch} has shed {sorted(more)[:5]} later"

    def _table(self, name: str) -> pa.Table:
        return read_table(self.folder / name)

    def _ids(self, name: str) -> list[int]:
        table = self._table(name)
        return table.column("id").to_pylist() if table.num_rows else []  # type: ignore[no-any-return]
