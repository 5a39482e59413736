"""Compare what a query wrote with DuckDB's join of the same files, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb


@dataclass(frozen=True)
class Comparison:
    """Rows that were written, by outcome, and those in which they differ from DuckDB's join as a multiset."""

    rows: int
    joined: int
    unmatched: int
    missing: int
    unexpected: int

    @property
    def equal(self) -> bool:
        """Whether the results are the same, duplicates counted."""
        return self.missing == 0 and self.unexpected == 0


def compare_with_duckdb(results: Path, orders: Sequence[Path], products: Path) -> Comparison:
    """Left join ``orders`` with ``products`` in DuckDB, and compare every column of every row with ``results``."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        _view(connection, "orders", orders)
        _view(connection, "products", [products])
        _view(connection, "written", sorted(results.glob("*.parquet")))
        connection.execute(
            "CREATE TEMP VIEW expected AS SELECT o.*, p.* EXCLUDE (id) "
            "FROM orders AS o LEFT JOIN products AS p ON o.product_id = p.id"
        )
        rows, unmatched = connection.sql("SELECT count(*), count(*) - count(sku) FROM written").fetchall()[0]
        missing, unexpected = (
            connection.sql(f"SELECT count(*) FROM (FROM {a} EXCEPT ALL FROM {b})").fetchall()[0][0]
            for a, b in (("expected", "written"), ("written", "expected"))
        )
    return Comparison(rows, rows - unmatched, unmatched, missing, unexpected)


def _view(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path]) -> None:
    quoted = ", ".join("'{}'".format(str(file).replace("'", "''")) for file in files)
    connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{quoted}])")
