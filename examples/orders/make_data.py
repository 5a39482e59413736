"""Data for orders.yaml: products, customers and stores as relations, and files of orders. Run it once."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream import Relation

PRODUCTS, LATE, CUSTOMERS, STORES = 3000, 100, 500, 20
FILES, ORDERS_PER_FILE = 4, 1000
START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


def products(first: int, last: int) -> pa.Table:
    """Products by id."""
    ids = np.arange(first, last)
    categories = np.array(["kitchen", "tools", "office", "sports"])
    return pa.table(
        {
            "id": ids,
            "sku": [f"SKU-{i:06d}" for i in ids],
            "category": categories[ids % 4],
            "price": np.round(1 + ids % 997 / 10, 2),
        }
    )


def customers() -> pa.Table:
    """Nine of ten customers that order: the others are not known yet."""
    codes = [f"C{i:05d}" for i in range(CUSTOMERS) if i % 10]
    segments, countries = np.array(["new", "regular", "gold"]), np.array(["DE", "GR", "PK", "US"])
    numbers = np.arange(len(codes))
    return pa.table({"code": codes, "segment": segments[numbers % 3], "country": countries[numbers % 4]})


def stores() -> pa.Table:
    """All stores but the last, which orders name all the same."""
    ids = np.arange(STORES - 1, dtype=np.int32)
    return pa.table({"id": ids, "city": [f"City {i}" for i in ids]})


def orders(number: int) -> pa.Table:
    """A file of orders: one in a hundred has no quantity worth the name, some are for products that come late."""
    rng = np.random.default_rng(number)
    ids = np.arange(number * ORDERS_PER_FILE, (number + 1) * ORDERS_PER_FILE)
    return pa.table(
        {
            "order_id": ids,
            "product_id": rng.integers(0, PRODUCTS + LATE, ids.size),
            "customer": [f"C{i:05d}" for i in rng.integers(0, CUSTOMERS, ids.size)],
            "store_id": pa.array(rng.integers(0, STORES, ids.size), pa.int32()),
            "quantity": pa.array(np.where(ids % 100 == 99, 0, rng.integers(1, 10, ids.size)), pa.int32()),
            "ordered_at": pa.array(START_US + ids * 1_000_000).cast(pa.timestamp("us", "UTC")),
        }
    )


def make(folder: Path) -> None:
    """Everything that the pipeline reads."""
    data = folder / "data"
    for name in ("orders", "product_updates"):
        (data / name).mkdir(parents=True)
    Relation.build(products(0, PRODUCTS), data / "products", key="id")
    Relation.build(customers(), data / "customers", key="code")
    Relation.build(stores(), data / "stores", key="id")
    for number in range(FILES):
        pq.write_table(orders(number), data / "orders" / f"{number:03d}.parquet")


def send_late_products(folder: Path) -> None:
    """An update of the products: those that orders wait for."""
    pq.write_table(products(PRODUCTS, PRODUCTS + LATE), folder / "data" / "product_updates" / "late.parquet")


if __name__ == "__main__":
    here = Path(__file__).parent
    send_late_products(here) if "--late" in sys.argv else make(here)
