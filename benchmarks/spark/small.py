"""small: pipelines with small micro-batches, beside Spark's own empty ones: where the time of a batch goes.

Both read the same folder, one file of a thousand rows per micro-batch. Spark's own query does nothing with its batch:
its time is what any streaming query takes. A trigger is the whole execution of a micro-batch, as Spark reports it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.harness.local_spark import CORES, start_spark
from benchmarks.harness.report import Report
from benchmarks.harness.workload import relation, relation_rows
from benchmarks.spark.spark_join import link_files, write_stream
from semistream import Relation
from semistream.pipelines.batch.batch_report import BatchReport, Trigger
from semistream.spark import Pipeline
from semistream.spark.pipelines.listener import SPARK_METRICS

ROWS = 1_000
_COLD, _COUNTED = 15, 60
_MOST_S, _OVER_SPARK = 0.5, 1.5


def run(scale: float, folder: Path) -> Report:
    rows = relation_rows(scale)
    report = Report("small", scale, f"R {rows:,} x 120 B, {ROWS:,} rows per micro-batch to Delta, local[{CORES}]")
    r = relation(folder, rows)
    spark = start_spark({})
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        base = Path(scratch).absolute()
        files = write_stream(base, rows, ROWS, _COLD + _COUNTED)
        empty = _empty(spark, files, base)
        reports, triggers = _pipeline(spark, r, files, base)
        again = _empty(spark, files, base / "again")
    spark.stop()
    theirs = [trigger.seconds for trigger in (*empty, *again)]
    ours = [trigger.seconds for trigger in triggers]
    report.add("pipeline", [1 / s for s in ours], unit="batches/s", note=f"{statistics.median(ours) * 1e3:.0f} ms")
    report.add(
        "Spark, empty", [1 / s for s in theirs], unit="batches/s", note=f"{statistics.median(theirs) * 1e3:.0f} ms"
    )
    report.require(f"a trigger in {_MOST_S} s", 1.0, _MOST_S / statistics.median(ours))
    report.require(
        f"a trigger in {_OVER_SPARK} empty ones of Spark",
        1.0,
        _OVER_SPARK * statistics.median(theirs) / statistics.median(ours),
    )
    report.remark("driver, by part: " + _by_part([each.parts_s for each in reports]))
    report.remark("trigger, by part: " + _by_part([each.parts_s for each in triggers]))
    report.remark("Spark's empty trigger, by part: " + _by_part([each.parts_s for each in (*empty, *again)]))
    return report


def _pipeline(
    spark: SparkSession, r: Relation, files: list[Path], base: Path
) -> tuple[list[BatchReport], list[Trigger]]:
    tables = {name: {"path": str(base / "tables" / name)} for name in ("sink", "unmatched", "quarantine")}
    source = {"format": "parquet", "path": str(link_files(files, base / "pipeline")), "files_per_batch": 1}
    pipeline = Pipeline.from_dict(
        {
            "name": "small",
            "source": {**source, "schema": {"key": "bigint", "seq": "bigint"}},
            "steps": [{"join": {"relation": str(r.path.absolute()), "on": "key"}}],
            **tables,
            "checkpoint": str(base / "checkpoint"),
            "memory": "5%",
        }
    )
    reports: list[BatchReport] = []
    pipeline.run(spark, once=True, watch=reports.append)
    lines = (pipeline.spec.checkpoint / SPARK_METRICS).read_text().splitlines()
    return reports[_COLD:], [Trigger(**json.loads(line)) for line in lines][_COLD:]


def _empty(spark: SparkSession, files: list[Path], base: Path) -> list[Trigger]:
    source = link_files(files, base / "empty")
    stream = spark.readStream.schema("key long, seq long").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.writeStream.foreachBatch(lambda *_: None)
    query = writer.option("checkpointLocation", str(base / "empty-checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return _triggers(query)


def _triggers(query: Any) -> list[Trigger]:
    return [Trigger.of(progress) for progress in query.recentProgress if "addBatch" in progress.durationMs][_COLD:]


def _by_part(batches: list[dict[str, float]]) -> str:
    """Return the median milliseconds of each part."""
    parts = defaultdict(list)
    for batch in batches:
        for name, seconds in batch.items():
            parts[name].append(seconds)
    return ", ".join(f"{name} {statistics.median(seconds) * 1e3:.0f} ms" for name, seconds in parts.items())
