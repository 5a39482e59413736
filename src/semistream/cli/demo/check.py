"""Compare the demo's results with DuckDB's star join of the same files, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

_VALID = "quantity BETWEEN 1 AND 1000 AND customer IS NOT NULL"
_EXPECTED = f"""
CREATE TEMP VIEW expected AS
SELECT o.*, p.* EXCLUDE (id), c.segment, c.country, s.city
FROM orders AS o {{how}} JOIN products AS p ON o.product_id = p.id LEFT JOIN customers AS c ON o.customer = c.code
    JOIN stores AS s ON o.store_id = s.id
WHERE {_VALID}
"""
_OUTCOMES = f"""
SELECT
    count(*) FILTER (NOT ({_VALID})),
    count(*) FILTER ({_VALID} AND p.id IS NULL),
    count(*) FILTER ({_VALID} AND p.id IS NOT NULL AND s.id IS NULL),
    count(*) FILTER ({_VALID} AND p.id IS NOT NULL AND s.id IS NOT NULL)
FROM orders AS o LEFT JOIN products AS p ON o.product_id = p.id LEFT JOIN stores AS s ON o.store_id = s.id
"""
_KEYS = """
SELECT count(DISTINCT customer), count(DISTINCT (customer, customer_key)), count(DISTINCT customer_key),
    coalesce(min(customer_key), 1), coalesce(max(customer_key), 0)
FROM written
"""


@dataclass(frozen=True)
class ResultCheck:
    """Rows missing from the results and rows not expected in them, as multisets, and DuckDB's count of each outcome."""

    rows: int
    missing: int
    unexpected: int
    outcomes: dict[str, int]
    keys_hold: bool = True

    @property
    def equal(self) -> bool:
        """True if the results are the same multiset and every customer has its own surrogate key."""
        return self.missing == 0 and self.unexpected == 0 and self.keys_hold


def compare_with_duckdb(
    written: Sequence[Path],
    orders: Sequence[Path],
    products: Sequence[Path],
    data: Path,
    how: str = "inner",
    *,
    keys: int | None = None,
) -> ResultCheck:
    """Join ``orders`` with products, customers and stores (in the folder ``data``) in DuckDB, and compare every column
    of every row with the ``written`` files.

    ``how`` is the join with the products. ``keys`` is the number of surrogate keys given out, None if there are none.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        for name, files in (
            ("orders", orders),
            ("products", products),
            ("customers", [data / "customers.parquet"]),
            ("stores", [data / "stores.parquet"]),
            ("written", written),
        ):
            _view(connection, name, files)
        connection.execute(_EXPECTED.format(how=how))
        own = "SELECT * EXCLUDE (customer_key) FROM written" if keys is not None else "FROM written"
        missing, unexpected = (
            _one(connection, f"SELECT count(*) FROM (({a}) EXCEPT ALL ({b}))")
            for a, b in (("FROM expected", own), (own, "FROM expected"))
        )
        found = connection.sql(_OUTCOMES).fetchall()[0]
        outcomes = dict(zip(("invalid", "waiting", "unmatched", "joined"), found, strict=True))
        holds = keys is None or _keys_hold(connection, keys)
        return ResultCheck(_one(connection, "SELECT count(*) FROM written"), missing, unexpected, outcomes, holds)


def _keys_hold(connection: duckdb.DuckDBPyConnection, keys: int) -> bool:
    """True if customers and surrogate keys match one to one, and every key is within those given out."""
    customers, pairs, numbers, first, last = connection.sql(_KEYS).fetchall()[0]
    return bool(customers == pairs == numbers and first >= 1 and last <= keys)


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(connection.sql(query).fetchall()[0][0])


def _view(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path]) -> None:
    quoted = ", ".join("'{}'".format(str(file).replace("'", "''")) for file in files)
    connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{quoted}])")
