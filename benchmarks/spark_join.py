"""semistream's join beside Spark's own stream-static join, on one machine, in one run.

R has 10 million rows of 120 bytes (times ``scale``), S is Zipf(1) over its keys in micro-batches of 500 thousand. Both
read the same folder of Parquet files, one file a micro-batch, on two local cores, into the noop sink. semistream gets
10 % of R as memory, half of it in each of the two Python workers; Spark's own join is the sort-merge join, with R as
Parquet: to broadcast R fails at this size. Rates are rows of S per second of a micro-batch's whole execution as Spark
reports it, the median over warm micro-batches.

    python -m benchmarks.spark_join --scale 0.1
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from semistream.relation import Relation
from semistream.spark import join
from semistream.streams import Zipf

R_ROWS, BATCH_ROWS, COLUMNS, CORES = 10_000_000, 500_000, 14, 2
WORKER_MEMORY = "5%"
COLD_BATCHES = 2
WARM_BATCHES = {"semistream": 8, "semistream, routed": 8, "spark": 3}
CHUNK_ROWS = 500_000


def run(scale: float, cache: Path = Path("bench-out")) -> dict[str, Any]:
    """Rates of all three, and how many times Spark's own ours are."""
    rows, batch_rows = int(R_ROWS * scale), max(int(BATCH_ROWS * scale), 1000)
    relation, parquet = prepare_relation(cache / f"spark-join-{rows}", rows)
    spark = start_spark()
    static = spark.read.parquet(str(parquet))
    queries: dict[str, Callable[[DataFrame], DataFrame]] = {
        "semistream": lambda s: join(s, relation, on="key", memory=WORKER_MEMORY),
        "semistream, routed": lambda s: join(s, relation, on="key", memory=WORKER_MEMORY, route="range"),
        "spark": lambda s: s.join(static, "key"),
    }
    rates = {}
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        files = write_stream(Path(scratch), rows, batch_rows, COLD_BATCHES + max(WARM_BATCHES.values()))
        for name, query in queries.items():
            folder = Path(scratch) / name
            rates[name] = measure(spark, query, link_files(files[: COLD_BATCHES + WARM_BATCHES[name]], folder))
    spark.stop()
    return {
        "r_rows": rows,
        "r_bytes": relation.nbytes,
        "batch_rows": batch_rows,
        "memory_bytes": relation.nbytes // 10,
        "rows_per_s": {name: round(rate) for name, rate in rates.items()},
        "times_spark": {name: round(rate / rates["spark"], 1) for name, rate in rates.items() if name != "spark"},
    }


def prepare_relation(folder: Path, rows: int) -> tuple[Relation, Path]:
    """R as a relation and as Parquet, built once and kept."""
    parquet = folder / "r.parquet"
    if not (folder / "r").exists():
        Relation.build(r_batches(rows), folder / "r", key="key")
    if not parquet.exists():
        hidden = folder / ".r.parquet"
        with pq.ParquetWriter(hidden, r_schema()) as writer:
            for batch in r_batches(rows):
                writer.write_batch(batch)
        hidden.rename(parquet)
    return Relation.open(folder / "r"), parquet


def r_schema() -> pa.Schema:
    return pa.schema([("key", pa.int64()), *((f"c{i}", pa.int64()) for i in range(COLUMNS))])


def r_batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Keys 0 to ``rows`` with columns that do not compress."""
    odd = np.random.default_rng(1).integers(2**62, size=COLUMNS) | 1
    for first in range(0, rows, CHUNK_ROWS):
        keys = np.arange(first, min(first + CHUNK_ROWS, rows))
        yield pa.record_batch([keys, *(keys * factor for factor in odd)], schema=r_schema())


def write_stream(folder: Path, keys: int, batch_rows: int, batches: int) -> list[Path]:
    """Files of one micro-batch each, in as many row groups as there are cores, so that every core reads one."""
    files = [folder / f"{number:03d}.parquet" for number in range(batches)]
    for file, batch in zip(files, Zipf(1.0, keys, seed=5).batches(batch_rows, batches), strict=True):
        pq.write_table(pa.Table.from_batches([batch]), file, row_group_size=-(-batch_rows // CORES))
    return files


def link_files(files: list[Path], folder: Path) -> Path:
    """A folder with these files and no others: a stream that ends."""
    folder.mkdir()
    for file in files:
        (folder / file.name).hardlink_to(file)
    return folder


def start_spark() -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .config("spark.sql.shuffle.partitions", str(4 * CORES))
        .config("spark.sql.files.openCostInBytes", "65536")  # else a small file is not split over the cores
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure(spark: SparkSession, query: Callable[[DataFrame], DataFrame], source: Path) -> float:
    """Rows per second of a query's warm micro-batches, one for each file."""
    stream = spark.readStream.schema("key long, seq long").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = query(stream).writeStream.format("noop").option("checkpointLocation", f"{source}-checkpoint")
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()
    batches = [progress for progress in started.recentProgress if progress["numInputRows"]]
    rates = [batch["numInputRows"] * 1000 / batch["durationMs"]["triggerExecution"] for batch in batches]
    return statistics.median(rates[COLD_BATCHES:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="times 10 million rows of R")
    parser.add_argument("--cache", type=Path, default=Path("bench-out"), help="where R is kept between runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    figures = run(arguments.scale, arguments.cache)
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"R {figures['r_rows']:,} rows, {figures['r_bytes'] / 1e9:.2f} GB; batches of {figures['batch_rows']:,} rows")
    for name, rate in figures["rows_per_s"].items():
        times = figures["times_spark"].get(name)
        print(f"{name:<20} {rate:>12,} rows/s" + (f"  {times:>6} x Spark's own" if times else ""))


if __name__ == "__main__":
    main()
