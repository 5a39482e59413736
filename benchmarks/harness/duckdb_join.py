"""DuckDB as a contestant: one query per batch, with a memory limit or with R in memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.harness.timing import batch_rates
from benchmarks.harness.workload import relation_parquet, relation_reader


def limited_rates(
    folder: Path, rows: int, stream: list[pa.RecordBatch], memory: int, *, cached: bool
) -> tuple[list[float], str]:
    """Return rows/s at ``memory``, and a note; the limit doubles until DuckDB no longer runs out of memory.

    DuckDB reads through the operating system's cache, which ``memory_limit`` does not count: on a machine with far more
    memory than the limit, all of R stays in that cache. If not ``cached``, DuckDB's file is dropped from it before each
    batch, so that the limit covers all memory used.
    """
    path = folder / f"duckdb-{rows}.db"
    with duckdb.connect(str(path)) as connection:
        if not connection.sql("SELECT * FROM duckdb_tables() WHERE table_name = 'r'").fetchall():
            connection.register("source", relation_reader(rows))
            connection.execute("CREATE TABLE r AS SELECT * FROM source ORDER BY key")
    limit = memory
    while True:
        config = {"memory_limit": f"{limit // 1024}KiB", "temp_directory": str(folder / "duckdb-tmp")}
        try:
            with duckdb.connect(str(path), read_only=True, config=config) as connection:
                before = partial(_drop_from_cache, path) if not cached else (lambda: None)
                rates = batch_rates(lambda batch: _joined(connection, batch), stream, before)
        except duckdb.OutOfMemoryException:
            limit *= 2
            continue
        short = f"; at {limit / 1e6:.0f} MB, with less it runs out of memory" if limit > memory else ""
        return rates, f"{'all of R' if cached else 'nothing'} in the operating system's cache{short}"


def _drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def in_memory_rates(folder: Path, rows: int, streams: dict[float, list[pa.RecordBatch]]) -> dict[float, list[float]]:
    """Return rows/s of each stream with R loaded into memory and no limit."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE r AS SELECT * FROM '{relation_parquet(folder, rows)}'")
        return {
            exponent: batch_rates(lambda batch: _joined(connection, batch), stream)
            for exponent, stream in streams.items()
        }


def _joined(connection: duckdb.DuckDBPyConnection, batch: pa.RecordBatch) -> int:
    connection.register("s", pa.table(batch))
    query = "SELECT s.*, r.* EXCLUDE (key) FROM s JOIN r ON s.key = r.key"
    return sum(b.num_rows for b in connection.sql(query).to_arrow_reader())
