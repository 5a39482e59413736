"""pages: joins and look-ups with pages of several sizes, on which the default of 64 KiB is based."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.harness.report import Report
from benchmarks.harness.workload import batch_rows, relation, relation_rows, stream_batches
from semistream import MeshJoin, Relation

PAGE_BYTES = (8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
_SHARE = 0.2  # size relative to the other benchmarks' R, because five relations are built
_REPEAT = 5
_LOOKUPS = 500


def run(scale: float, folder: Path) -> Report:
    rows, batch = relation_rows(scale * _SHARE), batch_rows(scale * _SHARE)
    stream = stream_batches(rows, batch, _REPEAT + 1)
    setup = (
        f"R {rows:,} x 120 B; join: batches of {batch:,}, 10 % of R; look-up: {_LOOKUPS} keys far apart, one read each"
    )
    report = Report("pages", scale, setup)
    for page_bytes in PAGE_BYTES:
        r = relation(folder, rows, page_bytes=page_bytes)
        note = f"page table {r.table.memory_bytes / r.nbytes:.2%} of R"
        report.add(f"{page_bytes >> 10} KiB: join", _join(r, stream), note=note)
        report.add(f"{page_bytes >> 10} KiB: look-up", _look_up(r, rows), unit="keys/s")
    return report


def _join(r: Relation, stream: list) -> list[float]:
    rates = []
    with MeshJoin(r, stream[0].schema, on="key", memory=r.nbytes // 10) as join:
        for batch in stream:
            start = time.perf_counter()
            list(join.push(batch))
            list(join.flush())
            rates.append(batch.num_rows / (time.perf_counter() - start))
    return rates[1:]


def _look_up(r: Relation, rows: int) -> list[float]:
    rates = []
    for repeat in range(_REPEAT):
        keys = np.linspace(repeat, rows - 1, _LOOKUPS).astype(np.int64)
        start = time.perf_counter()
        found = r.lookup(keys, ["c0"]).num_rows
        rates.append(found / (time.perf_counter() - start))
    return rates
