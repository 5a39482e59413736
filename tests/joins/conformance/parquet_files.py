"""Plain Parquet files for tests, and joins with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream import (
    AdaptiveMeshJoin,
    MeshJoin,
    ParquetRelation,
)
from tests.joins.conformance.checks import run

MEMORY = 16_000_000
every_scan = pytest.mark.parametrize("kind", [MeshJoin, AdaptiveMeshJoin])


def write(table: pa.Table, path: Path, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def products(rows: int = 5000) -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "id": rng.permutation(rows) % (rows // 2),
            "name": pa.array([f"product {i % 37}" for i in range(rows)]),
            "tags": pa.array([[f"t{i % 5}"] * (i % 3) if i % 7 else None for i in range(rows)]),
            "price": rng.random(rows),
        }
    )


def orders(rows: int = 800) -> pa.Table:
    return pa.table({"product": np.random.default_rng(8).integers(0, 3000, rows), "n": np.arange(rows)})


def joined(
    stream: pa.Table,
    relation: ParquetRelation | Path,
    how: str = "inner",
    kind: type[MeshJoin] = MeshJoin,
    **options: Any,
) -> pa.Table:
    opened = relation if isinstance(relation, ParquetRelation) else ParquetRelation.open(relation)
    options = {"on": {"product": "id"}, "memory": MEMORY} | options
    with kind(opened, stream.schema, how=how, **options) as operator:
        return run(operator, tuple(stream.to_batches()))
