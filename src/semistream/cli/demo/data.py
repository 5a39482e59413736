"""Data of the demo: products, customers, stores, and orders that arrive in bursts and are skewed to few products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from semistream.datasets import Bursty, Zipf

KNOWN_SHARE = 0.98  # share of the ordered products known from the start
STORES = 200  # stores named by orders; one of them is unknown
_PRODUCTS_PER_CUSTOMER = 20
_UNKNOWN_CUSTOMERS = 10  # one customer in 10 is unknown
_INVALID = 500  # one order in 500 has an invalid quantity
_VIRTUAL_STREAMS = 5  # bursts on scales from 2 to 32 micro-batches
_ROW_GROUPS = 4  # per file, so that several tasks can share it
_EPOCH = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)

_DRAW = "CREATE TEMP MACRO draw(id, salt, n) AS CAST(hash(id, salt) % n AS INTEGER)"
_PRODUCTS = """
COPY (
    SELECT
        id,
        printf('SKU-%09d', draw(id, 0, 1000000000)) AS sku,
        ['Basic', 'Classic', 'Deluxe', 'Eco', 'Compact', 'Heavy-duty', 'Portable'][1 + draw(id, 1, 7)] || ' '
            || ['kettle', 'lamp', 'drill', 'backpack', 'keyboard', 'water bottle'][1 + draw(id, 2, 6)]
            || ' no. ' || id AS name,
        ['kitchen', 'lighting', 'tools', 'outdoor', 'office', 'sports'][1 + draw(id, 2, 6)] AS category,
        printf('Supplier %05d Ltd.', draw(id, 3, 40000)) AS supplier,
        ['DE', 'FR', 'IT', 'NL', 'PL', 'CN', 'US', 'VN'][1 + draw(id, 4, 8)] AS origin,
        CAST(1 + draw(id, 5, 99900) / 100.0 AS DECIMAL(10, 2)) AS price,
        50 + draw(id, 6, 20000) AS weight_g,
        1.0 + draw(id, 7, 41) / 10.0 AS rating,
        draw(id, 8, 5000) AS in_stock,
        TIMESTAMPTZ '2020-01-01 00:00:00+00' + to_seconds(draw(id, 9, 150000000)) AS listed_at
    FROM range($first, $last) AS t(id)
) TO '{path}' (FORMAT parquet, COMPRESSION lz4_raw)
"""
_CUSTOMERS = """
COPY (
    SELECT
        printf('C%08d', id) AS code,
        ['new', 'regular', 'gold'][1 + draw(id, 1, 3)] AS segment,
        ['DE', 'FR', 'GR', 'PK', 'US'][1 + draw(id, 2, 5)] AS country
    FROM range($last) AS t(id) WHERE id % $unknown > 0
) TO '{path}' (FORMAT parquet)
"""
_STORES = """
COPY (SELECT CAST(id AS INTEGER) AS id, 'City ' || id AS city FROM range($last) AS t(id)) TO '{path}' (FORMAT parquet)
"""


@dataclass(frozen=True)
class DemoWorkload:
    """Size of the demo. ``mean_batch`` is the mean number of orders per micro-batch; one arrives every ``every_s``."""

    orders: int
    products: int
    mean_batch: int
    seed: int
    every_s: float = 4.0

    @property
    def ordered_products(self) -> int:
        """Number of distinct products in orders, including those that arrive late or never."""
        return max(1, round(self.products / KNOWN_SHARE))

    @property
    def late_products(self) -> range:
        """Products that arrive while orders wait for them: half of those unknown at the start."""
        return range(self.products, (self.products + self.ordered_products + 1) // 2)

    @property
    def customers(self) -> int:
        """Number of customers that order."""
        return max(10, self.products // _PRODUCTS_PER_CUSTOMER)

    def write_products(self, path: Path) -> None:
        """Write the products to a Parquet file, about 150 bytes a row."""
        _copy(_PRODUCTS, path, first=0, last=self.products)

    def write_late_products(self, path: Path) -> None:
        """Write the late products, with the same columns."""
        _copy(_PRODUCTS, path, first=self.late_products.start, last=self.late_products.stop)

    def write_customers(self, path: Path) -> None:
        """Write the known customers."""
        _copy(_CUSTOMERS, path, last=self.customers, unknown=_UNKNOWN_CUSTOMERS)

    def write_stores(self, path: Path) -> None:
        """Write the known stores."""
        _copy(_STORES, path, last=STORES - 1)

    def write_orders(self, folder: Path) -> list[int]:
        """Write one Parquet file per micro-batch, and return the number of orders in each."""
        folder.mkdir(parents=True)
        sizes = []
        for number, batch in enumerate(self.order_batches()):
            path = folder / order_file(number)
            pa.parquet.write_table(
                pa.Table.from_batches([batch]), path, row_group_size=max(1, -(-batch.num_rows // _ROW_GROUPS))
            )
            sizes.append(batch.num_rows)
        return sizes

    def order_batches(self) -> Iterator[pa.RecordBatch]:
        """Generate orders in micro-batches of bursty sizes; some have an unknown product or an invalid quantity."""
        values = Zipf(1.0, self.ordered_products, seed=self.seed)
        stream = Bursty(values, streams=_VIRTUAL_STREAMS, seed=self.seed)
        rng = np.random.default_rng(self.seed)
        for batch in stream.micro_batches(self.orders, self.mean_batch, name="product_id"):
            rows = batch.num_rows
            ordered_at = (
                _EPOCH + batch.column("step").to_numpy() * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))
            )
            quantity = np.where(rng.integers(0, _INVALID, rows) == 0, 0, rng.integers(1, 10, rows))
            customers = rng.integers(0, self.customers, rows)
            yield pa.record_batch(
                {
                    "order_id": batch.column("seq"),
                    "product_id": batch.column("product_id"),
                    "customer": pa.array([f"C{number:08d}" for number in customers.tolist()]),
                    "store_id": pa.array(rng.integers(0, STORES, rows, dtype=np.int32)),
                    "quantity": pa.array(quantity.astype(np.int32)),
                    "ordered_at": pa.array(ordered_at).view(pa.timestamp("us", "UTC")),
                }
            )


def order_file(number: int) -> str:
    """Name the file of a micro-batch."""
    return f"orders-{number:05d}.parquet"


def _copy(query: str, path: Path, **values: int) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        connection.execute(_DRAW)
        connection.execute(query.format(path=str(path).replace("'", "''")), values)
