"""Small tables, the same as files in every format, and a way to run a command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from semistream.cli.main import app
from semistream.relation import Relation


@dataclass(frozen=True)
class Answer:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*words: object) -> Answer:
    """Run ``semistream`` with these words."""
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="semistream", catch_exceptions=False)
    return Answer(result.exit_code, result.stdout, result.stderr)


def write(table: pa.Table, path: Path) -> Path:
    """Write a table in the format that the name ends in."""
    match path.suffix:
        case ".parquet":
            pa.parquet.write_table(table, path)
        case ".arrow":
            pa.feather.write_feather(table, path, compression="uncompressed")
        case ".csv":
            pa.csv.write_csv(table, path)
    return path


def read(path: Path) -> pa.Table:
    """Read such a file."""
    match path.suffix:
        case ".parquet":
            return pa.parquet.read_table(path)
        case ".arrow":
            return pa.feather.read_table(path)
    return pa.csv.read_csv(path)


@pytest.fixture
def products() -> pa.Table:
    """Products 0 to 1999, and three rows without an id."""
    ids = [*range(2000), None, None, None]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"product {i}" for i in ids],
            "price": pa.array([None if i is None else i / 4 for i in ids], pa.float64()),
        }
    )


@pytest.fixture
def orders() -> pa.Table:
    """Orders, some for products that do not exist, one without a product."""
    return pa.table(
        {
            "order_id": pa.array(range(3000), pa.int64()),
            "product": pa.array([*((i * 7919) % 2300 for i in range(2999)), None], pa.int64()),
            "price": pa.array([1.5] * 3000),
        }
    )


@pytest.fixture
def relation(products: pa.Table, tmp_path: Path) -> Path:
    """The products as a relation of several pages."""
    path = tmp_path / "products"
    Relation.build(products, path, key="id", page_bytes=4096)
    return path


@pytest.fixture
def stream(orders: pa.Table, tmp_path: Path) -> Path:
    """The orders as a Parquet file."""
    return write(orders, tmp_path / "orders.parquet")
