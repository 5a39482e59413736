"""Data for snapshot_changes.yaml: a table of customers on three days, each a CSV file. Run it once, beside the file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv

CUSTOMERS, DAYS = 1000, 3


def snapshot(day: int) -> pa.Table:
    """All customers of a day: each day some are new, some have another segment, and some are gone."""
    numbers = [n for n in range(CUSTOMERS + 20 * day) if n % 50 or n // 50 >= 2 * day]
    return pa.table(
        {
            "code": [f"C{n:05d}" for n in numbers],
            "name": [f"Customer {n}" for n in numbers],
            "segment": ["gold" if n % 100 < 2 * day else "regular" for n in numbers],
            "credit": [f"{n % 300}.{n % 100:02d}" for n in numbers],
        }
    )


def make(folder: Path) -> None:
    """A file for each day."""
    customers = folder / "data" / "customers"
    customers.mkdir(parents=True)
    for day in range(DAYS):
        pyarrow.csv.write_csv(snapshot(day), customers / f"2026-01-{day + 1:02d}.csv")


if __name__ == "__main__":
    make(Path(__file__).parent)
