"""The workload of the papers' size: R of 120-byte rows, S drawn from it by a Zipf distribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from semistream import Relation
from semistream.streams import Zipf

FULL_ROWS = 10_000_000
FULL_BATCH = 500_000
COLUMNS = 14
SCHEMA = pa.schema([("key", pa.int64()), *((f"c{i}", pa.int64()) for i in range(COLUMNS))])
_CHUNK = 250_000


def relation_rows(scale: float) -> int:
    return max(int(FULL_ROWS * scale), 1000)


def batch_rows(scale: float) -> int:
    return max(int(FULL_BATCH * scale), 100)


def relation_batches(rows: int) -> Iterator[pa.RecordBatch]:
    """R in random order: a key and 14 columns of eight bytes, so 120 bytes a row."""
    generator = np.random.default_rng(7)
    keys = generator.permutation(rows)
    for start in range(0, rows, _CHUNK):
        chunk = keys[start : start + _CHUNK]
        columns = [chunk, *(generator.integers(0, 1 << 40, chunk.size) for _ in range(COLUMNS))]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMA)


def relation(folder: Path, rows: int) -> Relation:
    """R on disk, built when it is not there yet."""
    path = folder / f"relation-{rows}"
    if (path / "CURRENT").exists():
        return Relation.open(path)
    return Relation.build(relation_batches(rows), path, key="key")


def relation_parquet(folder: Path, rows: int) -> Path:
    """R as one Parquet file, sorted by key, as a lake table would be at its best."""
    path = folder / f"relation-{rows}.parquet"
    if not path.exists():
        source = pa.RecordBatchReader.from_batches(SCHEMA, relation_batches(rows))
        with duckdb.connect() as connection:
            connection.register("source", source)
            connection.execute(f"COPY (SELECT * FROM source ORDER BY key) TO '{path}.new' (FORMAT parquet)")
        Path(f"{path}.new").rename(path)
    return path


def stream_batches(rows: int, batch: int, count: int, *, exponent: float = 1.0) -> list[pa.RecordBatch]:
    """S: keys of R by Zipf, hot ones anywhere, and the position in the stream."""
    return list(Zipf(exponent, rows, seed=11).batches(batch, count))
