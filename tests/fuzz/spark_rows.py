"""Hostile source rows through Spark's parsers: messages and lines in JSON and CSV, thousands in a job.

Spark parses them, so no branch of ours guides the choice: they are changes of a few rows, drawn from a seed. No job may
fail, and every row must come out once: as a row that can be checked, or as raw text for the quarantine.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.spec.source_spec import FileSource, KafkaSource
from semistream.pipelines.task.batch_task import RAW
from semistream.pipelines.task.row_checks import why_invalid
from tests.fuzz.changes import changed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = {
    "id": "bigint", "name": "string", "price": "decimal(10, 2)", "day": "date", "at": "timestamp", "ok": "boolean",
    "weight": "double", "small": "tinyint", "data": "binary",
}  # fmt: skip
_ROW = {
    "id": 1, "name": "cola \"x\" é", "price": 1.25, "day": "2024-02-29", "at": "2024-02-29T12:00:00.123Z", "ok": True,
    "weight": -1.5e-3, "small": 7, "data": "aGk=",
}  # fmt: skip
JSON = [json.dumps(_ROW), json.dumps({**_ROW, "extra": {"a": [1, None]}}), '{"id": null}', json.dumps(_ROW, indent=1)]
CSV = ['1,"cola ""x"" é",1.25,2024-02-29,2024-02-29T12:00:00Z,true,-1.5e-3,7,aGk=', ",,,,,,,,", "1"]
RULES = [RowRule("id", not_null=True, least=0), RowRule("name", one_of=("a", "b"))]
_OF_A_JOB = 20_000
Check = Callable[["SparkSession", Path, list[bytes]], None]


def values(kind: str, rng: random.Random, number: int) -> list[bytes]:
    """Draw values of a kind."""
    seeds = [text.encode() for text in (JSON if "json" in kind else CSV)]
    return [changed(rng.choice(seeds), rng) for _ in range(number)]


def _require_all_out(frame: DataFrame, wanted: int, *, exactly: bool) -> None:
    table = frame.toArrow()
    assert len(table) == wanted if exactly else len(table) <= wanted, (len(table), wanted)
    for batch in table.to_batches():
        rows = batch.select(list(SCHEMA))
        reasons = why_invalid(rows, batch.column(RAW), RULES, 10_000)
        assert len(reasons) == batch.num_rows


def messages(spark: SparkSession, folder: Path, content: list[bytes], value: str) -> None:
    """Parse values, and keys, of Kafka messages."""
    from semistream.spark.sources.kafka import TopicSource

    table = pa.table(
        {
            "key": pa.array(content[::-1], pa.binary()),
            "value": pa.array([None if each == b"{}" else each for each in content], pa.binary()),
            "partition": pa.array([0] * len(content), pa.int32()),
            "offset": pa.array(range(len(content)), pa.int64()),
        }
    )
    spec = KafkaSource(format="kafka", servers="x", topic="x", value=value, schema=SCHEMA)  # type: ignore[arg-type]
    _require_all_out(TopicSource(spec).rows(spark.createDataFrame(table)), len(content), exactly=True)


def files(spark: SparkSession, folder: Path, content: list[bytes], format: str) -> None:
    """Parse lines of a file; a value with a line end in it is several lines."""
    from semistream.spark.sources.files import FolderSource

    path = folder / f"rows.{format}"
    path.write_bytes(b"\n".join(content))
    spec = FileSource(format=format, path=folder, schema=SCHEMA)  # type: ignore[arg-type]
    rows = FolderSource(spec, through_spark=False).read(None, [str(path)], spark).rows
    lines = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
    _require_all_out(rows, lines, exactly=False)


def _checks() -> Iterator[tuple[str, Check]]:
    for form in ("json", "csv"):
        yield f"kafka_{form}", lambda spark, folder, content, form=form: messages(spark, folder, content, form)
        yield f"{form}_lines", lambda spark, folder, content, form=form: files(spark, folder, content, form)


CHECKS: dict[str, Check] = dict(_checks())
"""By kind: a function that sends hostile values through a source."""


def main() -> None:
    """Check values of a kind, named by the first argument, for some seconds; print their number and rate."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    from semistream.spark.session import LOCAL_SETTINGS, quiet_session

    settings = {**LOCAL_SETTINGS, "spark.sql.session.timeZone": "UTC"}

    done, rng = 0, random.Random(kind + sys.argv[2])
    with (
        tempfile.TemporaryDirectory() as folder,
        quiet_session("fuzz", "local[2]", log=Path(folder, "spark.log"), settings=settings) as spark,
    ):
        began = time.monotonic()  # after the start of Spark
        while time.monotonic() - began < seconds:
            CHECKS[kind](spark, Path(folder), values(kind, rng, _OF_A_JOB))
            done += _OF_A_JOB
        rate = done / (time.monotonic() - began)
    sys.stdout.write(f"stat::number_of_executed_units: {done}\nstat::average_exec_per_sec: {int(rate)}\n")


if __name__ == "__main__":
    main()
