"""engine: the embedded join beside DuckDB, Polars and LMDB look-ups; the scan beside raw reading."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.workload import (
    SCHEMA,
    batch_rows,
    relation,
    relation_batches,
    relation_parquet,
    relation_rows,
    stream_batches,
)
from semistream import MeshJoin, Relation, SemiStreamJoin
from semistream.joins import IndexNestedLoopJoin
from semistream.relation.disk import allocate_buffer

_BATCHES = 5
_LOOKUP_SHARE = 10  # LMDB look-ups are slow: a batch of theirs is a tenth
_RAW_BYTES = 4 << 20


def run(scale: float, folder: Path) -> Report:
    rows, batch = relation_rows(scale), batch_rows(scale)
    r = relation(folder, rows)
    memory = r.nbytes // 10
    stream = stream_batches(rows, batch, _BATCHES + 1)
    setup = f"R {rows:,} x 120 B, S Zipf(1) in batches of {batch:,}, memory {memory / 1e6:.0f} MB (10 % of R)"
    report = Report("engine", scale, setup)
    ours = report.add("semistream (auto)", _drain(MeshJoin(r, stream[0].schema, on="key", memory=memory), stream))
    rates, note = _duckdb(folder, rows, stream, memory)
    duck = report.add("DuckDB per batch, same memory_limit", rates, note=note)
    report.add("Polars per batch, all memory", _polars(folder, rows, stream), note="no memory limit")
    small = [b.slice(0, batch // _LOOKUP_SHARE) for b in stream]
    lookups = IndexNestedLoopJoin(r, stream[0].schema, on="key", memory=memory)
    report.add("LMDB look-ups (nested_loop)", _drain(lookups, small), note="operating system's cache warm")
    ours.note = f"{ours.median / duck.median:.2f} x DuckDB; read from disk by O_DIRECT, every batch"
    raw, scan = _scan(r, stream[0])
    report.add("raw O_DIRECT read, one core", raw, unit="bytes/s")
    report.add("relation scan with key comparison, one core", scan, unit="bytes/s")
    report.require("scan over raw read, one core", 0.6, float(np.median(scan) / np.median(raw)))
    return report


def _drain(operator: SemiStreamJoin, stream: list[pa.RecordBatch]) -> list[float]:
    """Rows/s of each batch, pushed and flushed; the first one warms up."""

    def one(batch: pa.RecordBatch) -> int:
        pushed = sum(result.num_rows for result in operator.push(batch))
        return pushed + sum(result.num_rows for result in operator.flush())

    with operator:
        return _timed(one, stream)


def _timed(one: Callable[[pa.RecordBatch], int], stream: list[pa.RecordBatch]) -> list[float]:
    rates = []
    for batch in stream:
        start = time.perf_counter()
        joined = one(batch)
        rates.append(batch.num_rows / (time.perf_counter() - start))
        if joined != batch.num_rows:
            raise RuntimeError(f"{joined} results for {batch.num_rows} rows, each of which has one partner")
    return rates[1:]


def _duckdb(folder: Path, rows: int, stream: list[pa.RecordBatch], memory: int) -> tuple[list[float], str]:
    """DuckDB at ``memory``, or at the least doubling of it with which it does not give up; and a note that says so."""
    path = folder / f"duckdb-{rows}.db"
    with duckdb.connect(str(path)) as connection:
        if not connection.sql("SELECT * FROM duckdb_tables() WHERE table_name = 'r'").fetchall():
            source = pa.RecordBatchReader.from_batches(SCHEMA, relation_batches(rows))
            connection.register("source", source)
            connection.execute("CREATE TABLE r AS SELECT * FROM source ORDER BY key")
    limit = memory
    while True:
        config = {"memory_limit": f"{limit // 1024}KiB", "temp_directory": str(folder / "duckdb-tmp")}
        try:
            with duckdb.connect(str(path), read_only=True, config=config) as connection:
                rates = _timed(lambda batch: _duckdb_batch(connection, batch), stream)
        except duckdb.OutOfMemoryException:
            limit *= 2
            continue
        short = f"; at {limit / 1e6:.0f} MB, with less it runs out of memory" if limit > memory else ""
        return rates, f"operating system's cache warm{short}"


def _duckdb_batch(connection: duckdb.DuckDBPyConnection, batch: pa.RecordBatch) -> int:
    connection.register("s", pa.table(batch))
    query = "SELECT s.*, r.* EXCLUDE (key) FROM s JOIN r ON s.key = r.key"
    return sum(b.num_rows for b in connection.sql(query).to_arrow_reader())


def _polars(folder: Path, rows: int, stream: list[pa.RecordBatch]) -> list[float]:
    lazy = pl.scan_parquet(relation_parquet(folder, rows))

    def one(batch: pa.RecordBatch) -> int:
        return pl.from_arrow(pa.table(batch)).lazy().join(lazy, on="key").collect(engine="streaming").height

    return _timed(one, stream[:3])


@contextmanager
def _one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _scan(r: Relation, batch: pa.RecordBatch) -> tuple[list[float], list[float]]:
    """Bytes/s of reading R's file and of joining it with a tenth of a batch, threads and all on one core."""
    file = r.data_files[0]
    few = batch.slice(0, batch.num_rows // 10)
    raw, scan = [], []
    with _one_core(), MeshJoin(r, few.schema, on="key", memory=r.nbytes // 10, columns=[]) as join:
        for _ in range(_BATCHES + 1):
            start = time.perf_counter()
            raw.append(_read_raw(file) / (time.perf_counter() - start))
            start = time.perf_counter()
            list(join.push(few))
            list(join.flush())
            scan.append(r.nbytes / (time.perf_counter() - start))
    return raw[1:], scan[1:]


def _read_raw(file: Path) -> int:
    buffer = allocate_buffer(_RAW_BYTES)
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    done = 0
    try:
        while got := os.preadv(descriptor, [buffer.data], done):
            done += got
    finally:
        os.close(descriptor)
    return done
