"""Workload of the benchmarks: R of 120-byte rows as in the papers, and S drawn from its keys by Zipf's law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream import Relation
from semistream.datasets import Zipf

FULL_ROWS = 10_000_000
FULL_BATCH = 500_000
COLUMNS = 14
_KEY_DIGITS = 10
_CHUNK_VALUES = 3_750_000


def relation_rows(scale: float) -> int:
    return max(int(FULL_ROWS * scale), 1000)


def batch_rows(scale: float) -> int:
    return max(int(FULL_BATCH * scale), 100)


def relation_schema(columns: int = COLUMNS, *, string_keys: bool = False) -> pa.Schema:
    key = pa.string() if string_keys else pa.int64()
    return pa.schema([("key", key), *((f"c{i}", pa.int64()) for i in range(columns))])


def relation_batches(rows: int, columns: int = COLUMNS, *, string_keys: bool = False) -> Iterator[pa.RecordBatch]:
    """Generate R in random order: a key and ``columns`` columns of 8 bytes each; 14 of them make rows of 120 bytes."""
    schema = relation_schema(columns, string_keys=string_keys)
    generator = np.random.default_rng(7)
    keys = generator.permutation(rows)
    step = _CHUNK_VALUES // (columns + 1)
    for start in range(0, rows, step):
        chunk = keys[start : start + step]
        payload = [pa.array(generator.integers(0, 1 << 40, chunk.size)) for _ in range(columns)]
        key = string_key(pa.array(chunk)) if string_keys else pa.array(chunk)
        yield pa.RecordBatch.from_arrays([key, *payload], schema=schema)


def string_key(numbers: pa.Array) -> pa.Array:
    """Format numbers as strings such as ``key-0000000042``, with a long common prefix like many generated keys."""
    digits = pc.utf8_lpad(pc.cast(numbers, pa.string()), width=_KEY_DIGITS, padding="0")
    return pc.binary_join_element_wise("key-", digits, "")


def relation(
    folder: Path, rows: int, columns: int = COLUMNS, *, string_keys: bool = False, page_bytes: int | None = None
) -> Relation:
    """Open R on disk, built if missing."""
    name = f"relation-{rows}"
    name += f"-key-and-{columns}" if columns != COLUMNS else ""
    name += "-string" if string_keys else ""
    name += f"-{page_bytes}" if page_bytes is not None else ""
    path = folder / name
    if (path / "CURRENT").exists():
        return Relation.open(path)
    batches = relation_batches(rows, columns, string_keys=string_keys)
    return Relation.build(batches, path, key="key", page_bytes=page_bytes)


def relation_parquet(folder: Path, rows: int) -> Path:
    """Return the path of R as one Parquet file sorted by key, the best case of a lake table; written if missing."""
    path = folder / f"relation-{rows}.parquet"
    if not path.exists():
        with duckdb.connect() as connection:
            connection.register("source", relation_reader(rows))
            connection.execute(f"COPY (SELECT * FROM source ORDER BY key) TO '{path}.new' (FORMAT parquet)")
        Path(f"{path}.new").rename(path)
    return path


def relation_reader(rows: int) -> pa.RecordBatchReader:
    """Return R as an Arrow stream."""
    return pa.RecordBatchReader.from_batches(relation_schema(), relation_batches(rows))


def stream_source(rows: int, exponent: float, *, anywhere: bool = True) -> Zipf:
    """Return an endless S: Zipf keys of R, the hot ones ``anywhere`` or adjacent, and the position in the stream."""
    return Zipf(exponent, rows, seed=11, permute=anywhere)


def stream_batches(
    rows: int, batch: int, count: int, *, exponent: float = 1.0, string_keys: bool = False, anywhere: bool = True
) -> list[pa.RecordBatch]:
    """Return the first tuples of `stream_source`. Each has one match in R."""
    batches = list(stream_source(rows, exponent, anywhere=anywhere).batches(batch, count))
    if not string_keys:
        return batches
    return [b.set_column(0, "key", string_key(b.column("key"))) for b in batches]
