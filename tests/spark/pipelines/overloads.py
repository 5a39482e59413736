"""Pipelines with a high assumed cost of rows, so that they shed, and the content of their archives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from semistream.errors import PipelineError
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload import service_times
from semistream.pipelines.overload.service_times import ServiceModel, ServiceTimes
from tests.spark.pipelines.warehouse import Warehouse, read_table, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from semistream.pipelines.batch.batch_report import BatchReport

ROW_S = 0.05
"""Assumed cost of a row: with a goal of 30 s, a batch joins about 230 rows."""
MOST_JOINED = 237


@contextmanager
def slow_service(row_s: float = ROW_S) -> Iterator[None]:
    """Replace the measured cost of a row by ``row_s`` seconds within the block."""
    with pytest.MonkeyPatch.context() as patch:
        believe_slow(row_s, patch.setattr)
        yield


def believe_slow(row_s: float, setattr: Callable[[Any, str, Any], None]) -> None:
    """Make all models of batch times assume ``row_s`` seconds for a row; ``setattr`` sets an attribute."""
    setattr(service_times, "_fitted", lambda *_: ServiceModel(0.1, row_s, 1e-9))
    setattr(ServiceTimes, "measured", True)


def overloaded(warehouse: Warehouse, *steps: dict[str, Any], format: str = "delta", **changes: Any) -> dict[str, Any]:
    """A pipeline of the warehouse with a goal of 30 s."""
    overload = {"latency": "30s", "archive": {"format": format, "path": str(warehouse.folder / "tables" / "archive")}}
    return {
        **warehouse.spec(*steps, format=format, **{k: v for k, v in changes.items() if k != "overload"}),
        "overload": {**overload, **changes.get("overload", {})},
    }


def reconcile(spark: SparkSession, spec: dict[str, Any]) -> list[BatchReport]:
    """Repair all shed rows; return the batches."""
    from semistream.spark.pipelines.pipeline import Pipeline

    reports: list[BatchReport] = []
    Pipeline.from_dict(spec).reconcile(spark, watch=reports.append)
    return reports


def cut_short(spark: SparkSession, spec: dict[str, Any], point: str) -> None:
    """Run a pipeline that fails at a point of the ledger's protocol."""

    def fail(reached: str) -> None:
        if reached == point:
            raise RuntimeError(f"cut short {point}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("semistream.pipelines.ledger.ledger.reached", fail)
        with pytest.raises(PipelineError, match=f"cut short {point}"):
            run(spark, spec)


def archive_ids(folder: Path) -> list[int]:
    """The orders in the archive, as others read it."""
    table = read_table(folder / "tables" / "archive")
    return sorted(table.column("id").to_pylist()) if table.num_rows else []


def archived_rows(folder: Path) -> int:
    """Return the number of rows to repair, from the ledger."""
    return sum(each.rows for each in Ledger.read(folder / "checkpoint", "orders").archived)
