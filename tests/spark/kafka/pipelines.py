"""Pipelines with Kafka at one end: their sources, and interrupted runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from semistream.errors import PipelineError
from tests.spark.kafka.broker import Broker
from tests.spark.pipelines.warehouse import SCHEMA, run


def topic_source(broker: Broker, topic: str, **changes: Any) -> dict[str, Any]:
    """A topic with orders as a source."""
    return {"format": "kafka", "servers": broker.servers, "topic": topic, "schema": SCHEMA, **changes}


def as_messages(table: pa.Table, value: str = "json") -> Iterator[tuple[str, str]]:
    """Rows as messages, with their ids as keys."""
    for row in table.to_pylist():
        yield str(row["id"]), json.dumps(row) if value == "json" else ",".join(str(each) for each in row.values())


def run_cut_short(spark: SparkSession, spec: dict[str, Any], module: str, point: str) -> None:
    """Run a pipeline that fails at a point of the ledger's protocol."""

    def fail(reached: str) -> None:
        if reached == point:
            raise RuntimeError(f"cut short {point}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.reached", fail)
        with pytest.raises(PipelineError, match=f"cut short {point}"):
            run(spark, spec)


def quarantined(table: pa.Table) -> Iterable[str]:
    """Return the raw rows of the quarantine, in order."""
    return sorted(table.column("raw").to_pylist())
