"""A simulated day of one pipeline, without Spark: ``python -m tests.simulation.day --batches 8640``.

What a process and its folders hold must not grow with the batches: memory, descriptors, threads, files, and the time of
a batch. The tables' own data and Delta's log grow by their nature.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.pipelines.batch.batch_report import BatchReport
from semistream.relation import Relation
from tests.simulation.local_driver import drive
from tests.simulation.runner import LocalRunner
from tests.simulation.world import World
from tests.spark.pipelines.warehouse import SCHEMA

_EVERY_S = 10.0
_PRODUCTS, _CUSTOMERS, _ROWS = 20_000, 2_000, 500
_UPDATE_EVERY, _BURST_EVERY, _BURST = 6, 50, 4  # batches; a burst has so many files at once
_SAMPLES = 12
_WARM_UP = 0.25  # of the batches, before growth is measured


@dataclass(frozen=True)
class Sample:
    """What the process and the folders hold after a batch."""

    batch: int
    resident_mb: float
    arrow_mb: float
    descriptors: int
    threads: int
    checkpoint_kb: float
    relations_kb: float
    batch_ms: float

    HEADER = "batch  resident MB  arrow MB  descriptors  threads  checkpoint KB  relations KB  batch ms"

    def __str__(self) -> str:
        return (
            f"{self.batch:5d}  {self.resident_mb:11.1f}  {self.arrow_mb:8.2f}  {self.descriptors:11d}  "
            f"{self.threads:7d}  {self.checkpoint_kb:13.0f}  {self.relations_kb:12.0f}  {self.batch_ms:8.1f}"
        )


class Day:
    """A pipeline with updates, surrogate keys, late rows and bursts, on a virtual clock."""

    def __init__(self, world: World, batches: int) -> None:
        self._world, self._batches = world, batches
        self._draw = np.random.default_rng(1)
        self._orders, self._updates, self._sent = world.folder / "orders", world.folder / "updates", 0
        for folder in (self._orders, self._updates):
            folder.mkdir()
        Relation.build(self._products(0), world.folder / "products", key="id")
        self.samples: list[Sample] = []
        self._times: list[float] = []

    def run(self) -> None:
        """Run all batches."""
        begun = time.perf_counter()
        feed = self._fed()

        def watch(report: BatchReport) -> None:
            nonlocal begun
            now = time.perf_counter()
            self._times.append(now - begun)
            begun = now
            if report.batch % max(self._batches // _SAMPLES, 1) == 0:
                self._sample(report.batch)
            next(feed, None)

        next(feed)
        drive(self._world, self._spec(), late=True, watch=watch)
        self._sample(len(self._times))

    def _fed(self) -> Iterator[None]:
        """Bring the input of a batch, again and again; remove what was read long ago, as people do."""
        for batch in range(self._batches):
            self._world.now += _EVERY_S
            with self._world.outside():
                for _ in range(_BURST if batch % _BURST_EVERY == _BURST_EVERY - 1 else 1):
                    self._put_orders()
                if batch % _UPDATE_EVERY == 0:
                    pq.write_table(self._products(batch).slice(0, 200), self._updates / f"{batch:08d}.parquet")
                for folder, kept in ((self._orders, 50), (self._updates, 20)):
                    for old in sorted(folder.iterdir())[:-kept]:
                        old.unlink()
            yield

    def _put_orders(self) -> None:
        rows, draw = _ROWS, self._draw
        columns = {
            "id": np.arange(self._sent * rows, (self._sent + 1) * rows),
            "product": draw.integers(0, int(1.01 * _PRODUCTS), rows),
            "customer": [f"c{i}" for i in draw.integers(0, _CUSTOMERS, rows)],
            "quantity": pa.array(draw.integers(1, 9, rows), pa.int32()),
            "amount": draw.random(rows),
        }
        pq.write_table(pa.table(columns), self._orders / f"{self._sent:08d}.parquet")
        self._sent += 1

    def _products(self, edition: int) -> pa.Table:
        ids = self._draw.permutation(_PRODUCTS)
        return pa.table({"id": ids, "price": self._draw.random(_PRODUCTS), "edition": np.full(_PRODUCTS, edition)})

    def _spec(self) -> dict[str, Any]:
        at = self._world.folder
        updates = {"format": "parquet", "path": str(self._updates)}
        join = {"relation": str(at / "products"), "on": {"product": "id"}, "unmatched": "retry", "retry_for": "5m"}
        return {
            "name": "day",
            "source": {"format": "parquet", "path": str(self._orders), "schema": SCHEMA, "files_per_batch": 1},
            "steps": [
                {"surrogate_key": {"relation": str(at / "keys"), "key": "customer", "into": "customer_key"}},
                {"join": {**join, "updates": updates}},
            ],
            "sink": {"path": str(at / "sink"), "format": "parquet"},
            "unmatched": {"path": str(at / "unmatched")},
            "quarantine": {"path": str(at / "quarantine"), "format": "parquet"},
            "checkpoint": str(at / "checkpoint"),
            "memory": "16MB",
        }

    def _sample(self, batch: int) -> None:
        gc.collect()
        own, folder = psutil.Process(), self._world.folder
        self._world.steps.clear()
        taken = Sample(
            batch,
            own.memory_info().rss / 1e6,
            pa.total_allocated_bytes() / 1e6,
            own.num_fds(),
            threading.active_count(),
            _kilobytes(folder / "checkpoint", leave="spark"),
            _kilobytes(folder / "products") + _kilobytes(folder / "keys"),
            1000 * float(np.median(self._times[-100:])),
        )
        self.samples.append(taken)
        print(taken, flush=True)  # noqa: T201 (this is a command)


def _kilobytes(folder: Path, leave: str = "") -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and leave not in file.parts) / 1e3


def main(batches: int) -> int:
    """Run a day, and report the growth since its warm-up."""
    print(Sample.HEADER)  # noqa: T201
    with tempfile.TemporaryDirectory(prefix="semistream-day-") as name:
        world = World(Path(name), seed=1)
        day = Day(world, batches)
        with LocalRunner(world).set_up():
            day.run()
    warm = next(each for each in day.samples if each.batch >= _WARM_UP * batches)
    last = day.samples[-1]
    for what in ("resident_mb", "arrow_mb", "descriptors", "threads", "checkpoint_kb", "relations_kb", "batch_ms"):
        before, after = getattr(warm, what), getattr(last, what)
        print(f"{what}: {before:.1f} after {warm.batch} batches, {after:.1f} after {last.batch}")  # noqa: T201
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.day", description=__doc__)
    parser.add_argument("--batches", type=int, default=8640, help="one every 10 simulated seconds; 8640 are a day")
    sys.exit(main(parser.parse_args().batches))
