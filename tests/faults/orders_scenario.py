"""Orders with surrogate keys, duplicates and late products, and the expected tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.relation import Relation
from tests.faults.backlog import FILES_AHEAD, batches_done
from tests.spark.pipelines.warehouse import SCHEMA, put, read_table

PRODUCTS = 300
_FRESH, _AGAIN, _BROKEN = 80, 8, 3  # rows of a file: new ones, repeated ones, and such that break a rule
_LATE = 4  # products that an update brings


class OrdersScenario:
    """A pipeline of many parts over a source and a relation that both grow between kills.

    Even products are there from the start, and each update gives all of them its number as ``edition``: so a row tells
    which version of R it was joined with, and all rows of a file that did not wait must tell the same. An update brings
    some odd products as well, deletes one of those before, and has a row without a key, which goes to the quarantine.
    """

    def __init__(self, folder: Path, seed: int, latency: str | None = None) -> None:
        self.folder, self.latency = folder, latency
        self._generator = np.random.default_rng(seed)
        self._sent: list[list[dict[str, Any]]] = []
        self._updates = 0
        self._brought: dict[int, int] = {}  # odd products, and in which update they came
        self._deleted: set[int] = set()
        self._seen: dict[str, int] = {}
        self._shown: dict[str, Counter[Any]] = {}
        for part in ("orders", "updates"):
            (folder / part).mkdir(parents=True)
        ids = np.arange(0, PRODUCTS, 2)
        columns = {"id": ids, "name": [f"product {i}" for i in ids], "edition": np.zeros(ids.size, np.int64)}
        Relation.build(pa.table(columns), folder / "products", key="id", page_bytes=2048)

    def spec(self, retry_for: str = "1 day") -> dict[str, Any]:
        """The pipeline."""
        at = {
            name: str(self.folder / name)
            for name in ("orders", "updates", "products", "keys", "seen", "checkpoint", "sink", "unmatched")
        }
        updates = {"format": "parquet", "path": at["updates"], "op": "op"}
        join = {"relation": at["products"], "on": {"product": "id"}, "unmatched": "retry", "retry_for": retry_for}
        spec = {
            "name": "orders",
            "source": {
                "format": "parquet", "path": at["orders"], "schema": SCHEMA, "files_per_batch": 1,
                "rules": [{"column": "quantity", "min": 1}],
            },
            "steps": [
                {"surrogate_key": {"relation": at["keys"], "key": "customer", "into": "customer_key", "source": "s"}},
                {"deduplicate": {"relation": at["seen"], "key": "id"}},
                {"join": {**join, "updates": updates}},
            ],
            "sink": {"path": at["sink"]},
            "unmatched": {"path": at["unmatched"], "format": "parquet"},
            "quarantine": {"path": str(self.folder / "quarantine"), "format": "parquet"},
            "duplicates": {"path": str(self.folder / "duplicates")},
            "checkpoint": at["checkpoint"],
            "memory": "32MB",
            "every": "100ms",
        }  # fmt: skip
        return spec if self.latency is None else {**spec, "latency": self.latency}

    def grow(self) -> None:
        """One more update, and files of orders until some wait."""
        while len(self._sent) - batches_done(self.folder) < FILES_AHEAD:
            self.put_orders()
        self.put_update()

    def put_orders(self) -> None:
        """One more file of orders."""
        draw, first = self._generator, sum(len(rows) for rows in self._sent)
        customers = 5 * (len(self._sent) + 1)
        rows = [
            {
                "id": first + i, "product": int(draw.integers(PRODUCTS)), "customer": f"c{draw.integers(customers)}",
                "quantity": 0 if i < _BROKEN else int(draw.integers(1, 9)), "amount": float(draw.integers(1, 1000)),
            }
            for i in range(_FRESH)
        ]  # fmt: skip
        known = [row for sent in [*self._sent, rows] for row in sent if row["quantity"]]
        rows += [known[i] for i in draw.integers(len(known), size=_AGAIN)]
        table = pa.Table.from_pylist(rows).cast(pa.schema([(n, _ARROW[t]) for n, t in SCHEMA.items()]))
        put(table, self.folder / "orders" / f"{len(self._sent):05d}.parquet")
        self._sent.append(rows)

    def put_update(self) -> None:
        """One more update of the products."""
        self._updates += 1
        number, before = self._updates, sorted(set(self._brought) - self._deleted)
        odd = [p for p in range(1, PRODUCTS, 2) if p not in self._brought]
        new = self._generator.choice(odd, min(_LATE, len(odd) - 20), replace=False).tolist() if len(odd) > 20 else []
        changed = [*range(0, PRODUCTS, 2), *new]
        gone = [int(self._generator.choice(before))] if before and number % 2 else []
        ids: list[int | None] = [*changed, *gone, None]
        columns = {
            "id": pa.array(ids, pa.int64()),
            "name": [f"product {i}" for i in ids],
            "edition": [number] * len(ids),
            "op": ["U"] * len(changed) + ["D"] * len(gone) + ["U"],
        }
        self._brought |= dict.fromkeys(new, number)
        self._deleted |= set(gone)
        put(pa.table(columns), self.folder / "updates" / f"{number:05d}.parquet")

    def look(self) -> None:
        """Check that no row shown before is lost, and that no number has changed."""
        for name in ("sink", "unmatched", "quarantine", "duplicates"):
            now = _rows(self._table(name))
            lost = self._shown.get(name, Counter()) - now
            assert not lost, f"{name} has lost {sorted(lost)[:3]}"
            self._shown[name] = now
        numbers = self._numbers()
        changed = {name: (n, numbers.get(name)) for name, n in self._seen.items() if numbers.get(name) != n}
        assert not changed, f"surrogate keys have changed: {changed}"
        self._seen = numbers

    def check(self) -> None:
        """All tables, after the pipeline has run to its end with nothing left that waits."""
        self.look()
        rows = [row for sent in self._sent for row in sent]
        by_id = {row["id"]: row for row in rows}
        good = Counter(row["id"] for row in rows if row["quantity"])
        sink, unmatched = self._table("sink"), self._table("unmatched")
        self._same("each order ends once", Counter(_ids(sink) + _ids(unmatched)), Counter(dict.fromkeys(good, 1)))
        repeated = Counter({i: n - 1 for i, n in good.items() if n > 1})
        self._same("repeated orders are duplicates", Counter(_ids(self._table("duplicates"))), repeated)
        for table in (sink, unmatched):
            for row in table.to_pylist():
                sent = by_id[row["id"]]
                assert {name: row[name] for name in sent} == sent
        self._check_quarantine(sum(not row["quantity"] for row in rows))
        self._check_partners(set(_ids(sink)), set(_ids(unmatched)), by_id)
        self._check_editions(sink)
        numbers = self._numbers()
        assert sorted(numbers.values()) == list(range(1, len(numbers) + 1)), "surrogate keys are not 1, 2, 3 ..."
        assert set(numbers) == {row["customer"] for row in rows if row["quantity"]}
        in_sink = {(row["customer"], row["customer_key"]) for row in sink.to_pylist()}
        assert in_sink <= set(numbers.items()), "an order has another number than its customer"

    def _check_quarantine(self, broken: int) -> None:
        reasons = Counter(row["reason"] for row in self._table("quarantine").to_pylist())
        expected = Counter({"quantity is below 1": broken, "a row without its key (id)": self._updates})
        self._same("the quarantine has each bad row once", reasons, expected)

    def _check_partners(self, joined: set[int], unmatched: set[int], by_id: dict[int, Any]) -> None:
        """Orders of products that came and stayed are joined; those of products that never came are not."""
        never = {i for i in joined if by_id[i]["product"] % 2 and by_id[i]["product"] not in self._brought}
        assert not never, f"{sorted(never)[:5]} are joined, but their products never came"
        stayed = set(self._brought) - self._deleted
        missed = {i for i in unmatched if by_id[i]["product"] % 2 == 0 or by_id[i]["product"] in stayed}
        assert not missed, f"{sorted(missed)[:5]} are unmatched, but their products are there"

    def _check_editions(self, sink: pa.Table) -> None:
        """All rows of a file that did not wait were joined with the same version of R."""
        first_in = {row["id"]: n for n, sent in reversed(list(enumerate(self._sent))) for row in sent}
        editions: dict[int, set[int]] = defaultdict(set)
        for row in sink.to_pylist():
            assert row["edition"] <= self._updates
            if row["product"] % 2 == 0:
                editions[first_in[row["id"]]].add(row["edition"])
            else:
                assert row["edition"] == self._brought[row["product"]]
        torn = {file: found for file, found in editions.items() if len(found) > 1 and self.latency is None}
        assert not torn, f"files were joined with several versions of R: {torn}"

    def _numbers(self) -> dict[str, int]:
        if not (self.folder / "keys" / "CURRENT").exists():
            return {}
        rows = Relation.open(self.folder / "keys").scan().read_all().to_pylist()
        numbers = {row["customer"]: row["surrogate_key"] for row in rows}
        assert len(numbers) == len(rows), "a customer has two numbers"
        return numbers

    def _table(self, name: str) -> pa.Table:
        return read_table(self.folder / name)

    @staticmethod
    def _same(what: str, found: Counter[Any], expected: Counter[Any]) -> None:
        assert found == expected, (
            f"{what}: lost {list((expected - found).items())[:5]}, doubled {list((found - expected).items())[:5]}"
        )


_ARROW = {"bigint": pa.int64(), "string": pa.string(), "int": pa.int32(), "double": pa.float64()}


def _rows(table: pa.Table) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _ids(table: pa.Table) -> list[int]:
    return table.column("id").to_pylist() if table.num_rows else []  # type: ignore[no-any-return]
