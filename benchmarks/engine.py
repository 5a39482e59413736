"""engine: the embedded join of a stream against DuckDB, Polars and LMDB look-ups, and the scan against raw reads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.harness.duckdb_join import in_memory_rates, limited_rates
from benchmarks.harness.report import Measurement, Report
from benchmarks.harness.timing import batch_rates, drained_rates, stream_rate
from benchmarks.harness.workload import batch_rows, relation, relation_parquet, relation_rows, stream_batches
from semistream import IndexNestedLoopJoin, MeshJoin, Relation
from semistream.errors import BudgetError
from semistream.relation.read.disk import allocate_buffer

EXPONENTS = (0.0, 0.5, 1.0)
_STREAM_BATCHES = 80
_REPEAT = 3
_BATCHES = 5  # for contestants that join batch by batch; one more for the warm-up
_LOOKUP_SHARE = 10  # LMDB look-ups are slow, so their batches have a tenth of the rows
_RAW_BYTES = 4 << 20

OVER_LIMITED, OVER_IN_MEMORY = 8.0, 3.0
SMALL_MEMORY_RATE, SMALL_MEMORY_SHARE = 2e6, 1 / 3  # share of the rate with 10 %; the lower of the two is required
STRING_KEYS, WIDE_ROWS = 0.5, 2 / 3
_LEAST_BYTES = 4 << 20  # memory for an R of few columns: at a small scale, a tenth of it would be a few pages
_WIDE_COLUMNS, _NARROW_COLUMNS = 49, 2  # besides the key


def run(scale: float, folder: Path) -> Report:
    rows, batch = relation_rows(scale), batch_rows(scale)
    r = relation(folder, rows)
    memory = r.nbytes // 10
    setup = (
        f"R {rows:,} x 120 B, S Zipf in batches of {batch:,}, memory {memory / 1e6:.0f} MB (10 % of R); "
        f"semistream: streams of up to {_STREAM_BATCHES} batches, from the first row to the last result"
    )
    report = Report("engine", scale, setup)
    ours = {exponent: _beside_itself(report, r, rows, batch, exponent) for exponent in EXPONENTS}
    few = {exponent: stream_batches(rows, batch, _BATCHES + 1, exponent=exponent) for exponent in EXPONENTS}
    _beside_duckdb(report, ours, few, folder, rows, memory)
    stream = few[1.0]
    report.add("Polars per batch, all memory, Zipf 1", _polars(folder, rows, stream), note="no memory limit")
    small = [b.slice(0, batch // _LOOKUP_SHARE) for b in stream]
    lookups = IndexNestedLoopJoin(r, stream[0].schema, on="key", memory=memory)
    report.add(
        "LMDB look-ups (nested_loop), Zipf 1", drained_rates(lookups, small), note="operating system's cache warm"
    )
    _with_string_keys(report, ours[1.0], folder, rows, batch)
    _with_wide_rows(report, folder, rows, batch)
    raw, scan = _scan(r, stream[0])
    report.add("raw O_DIRECT read, one core", raw, unit="bytes/s")
    report.add("relation scan with key comparison, one core", scan, unit="bytes/s")
    report.require("scan over raw read, one core", 0.6, float(np.median(scan) / np.median(raw)))
    return report


def _repeated(
    report: Report, name: str, r: Relation, stream: list[pa.RecordBatch], memory: int, columns: list[str] | None = None
) -> Measurement:
    rates = [stream_rate(r, stream, memory, columns=columns) for _ in range(_REPEAT)]
    return report.add(name, rates, note=f"{memory / 1e6:.1f} MB")


def _beside_itself(report: Report, r: Relation, rows: int, batch: int, exponent: float) -> Measurement:
    """Measure the join with a tenth and a hundredth of R as memory; at a small scale, the latter may be too little."""
    stream = stream_batches(rows, batch, _STREAM_BATCHES, exponent=exponent)
    much = _repeated(report, f"semistream (auto), Zipf {exponent:g}, 10 %", r, stream, r.nbytes // 10)
    try:
        little = _repeated(report, f"semistream (auto), Zipf {exponent:g}, 1 %", r, stream, r.nbytes // 100)
    except BudgetError as refused:
        report.remark(f"Zipf {exponent:g}, 1 % of R: not measured; {refused}")
        return much
    enough = min(SMALL_MEMORY_RATE, much.median * SMALL_MEMORY_SHARE)
    report.require(
        f"Zipf {exponent:g}, 1 % of R: over {enough / 1e6:.2f} M rows/s (2 M, or a third of the rate with 10 %)",
        1.0,
        little.median / enough,
    )
    return much


def _beside_duckdb(
    report: Report,
    ours: dict[float, Measurement],
    streams: dict[float, list[pa.RecordBatch]],
    folder: Path,
    rows: int,
    memory: int,
) -> None:
    in_memory = in_memory_rates(folder, rows, streams)
    for exponent, stream in streams.items():
        name, mine = f"DuckDB per batch, Zipf {exponent:g}", ours[exponent].median
        rates, note = limited_rates(folder, rows, stream, memory, cached=False)
        limited = report.add(f"{name}, same memory", rates, note=note)
        rates, note = limited_rates(folder, rows, stream, memory, cached=True)
        helped = report.add(f"{name}, same memory_limit", rates, note=note)
        free = report.add(f"{name}, R in memory", in_memory[exponent], note="no limit")
        what = f"Zipf {exponent:g}: semistream over DuckDB"
        report.require(f"{what} at the same memory", OVER_LIMITED, mine / limited.median)
        report.require(f"{what} with all of R in memory", OVER_IN_MEMORY, mine / free.median)
        report.remark(
            f"{what} at the same memory_limit, but with all of R in the operating system's cache, which the limit does "
            f"not count and semistream does not use: {mine / helped.median:.1f}x."
        )


def _with_string_keys(report: Report, integers: Measurement, folder: Path, rows: int, batch: int) -> None:
    r = relation(folder, rows, string_keys=True)
    stream = stream_batches(rows, batch, _STREAM_BATCHES, string_keys=True)
    strings = _repeated(report, "semistream (auto), Zipf 1, string keys, 10 %", r, stream, r.nbytes // 10)
    report.require("string keys over integer keys", STRING_KEYS, strings.median / integers.median)


def _with_wide_rows(report: Report, folder: Path, rows: int, batch: int) -> None:
    """Compare three of fifty columns with an R of these three alone, with the same memory."""
    narrow = relation(folder, rows, _NARROW_COLUMNS)
    wide = relation(folder, rows, _WIDE_COLUMNS)
    stream, memory = stream_batches(rows, batch, _STREAM_BATCHES), max(narrow.nbytes // 10, _LEAST_BYTES)
    three = _repeated(report, "semistream (auto), Zipf 1, R of 3 columns", narrow, stream, memory)
    projected = [f"c{i}" for i in range(_NARROW_COLUMNS)]
    fifty = _repeated(report, "semistream (auto), Zipf 1, 3 of R's 50 columns", wide, stream, memory, projected)
    report.require("3 of R's 50 columns over an R of these 3", WIDE_ROWS, fifty.median / three.median)


def _polars(folder: Path, rows: int, stream: list[pa.RecordBatch]) -> list[float]:
    lazy = pl.scan_parquet(relation_parquet(folder, rows))

    def one(batch: pa.RecordBatch) -> int:
        return pl.from_arrow(pa.table(batch)).lazy().join(lazy, on="key").collect(engine="streaming").height

    return batch_rates(one, stream[:3])


@contextmanager
def _one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _scan(r: Relation, batch: pa.RecordBatch) -> tuple[list[float], list[float]]:
    """Return bytes/s of raw reads of R's file, and of its join with a tenth of a batch, all threads on one core."""
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
