"""What the demo found: as data for ``--json``, and as the table a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import facts, render

if TYPE_CHECKING:
    from semistream.spark.demo import Batch

_NO_BROADCAST = " (a broadcast is for tables below 10 MB)"


def orders_per_s(batches: Sequence[Batch]) -> float:
    """The mean rate over some batches."""
    return sum(batch.rows for batch in batches) / sum(batch.seconds for batch in batches)


@dataclass(frozen=True)
class QueryReport:
    """One query over ``batches`` micro-batches. ``seconds`` is the time of the micro-batches, the first included."""

    batches: int
    orders: int
    joined: int
    unmatched: int
    seconds: float
    rows_per_s: int
    equals_duckdb: bool
    per_batch: list[dict[str, Any]]

    @classmethod
    def of(cls, batches: Sequence[Batch], *, joined: int, unmatched: int, equals_duckdb: bool) -> QueryReport:
        """Sum up a query's batches."""
        return cls(
            batches=len(batches),
            orders=sum(batch.rows for batch in batches),
            joined=joined,
            unmatched=unmatched,
            seconds=round(sum(batch.seconds for batch in batches), 3),
            rows_per_s=round(orders_per_s(batches)),
            equals_duckdb=equals_duckdb,
            per_batch=[
                {"batch": b.number, "orders": b.rows, "seconds": b.seconds, "rows_per_s": round(b.rows_per_s)}
                for b in batches
            ],
        )


@dataclass(frozen=True)
class DemoReport:
    """The demo's outcome.

    ``warm_rows_per_s`` and ``speedup`` are of the batches that both queries had, without the first one: in that,
    workers start and code is compiled.
    """

    products: int
    product_bytes: int
    pages: int
    build_seconds: float
    cores: int
    budget_bytes: int
    peak_bytes: int
    workers: int
    pages_read: int
    requests: int
    bytes_read: int
    semistream: QueryReport
    spark: QueryReport
    spark_strategy: str
    warm_rows_per_s: dict[str, int]
    speedup: float
    seconds: float
    files: dict[str, str]


@render.register
def _(report: DemoReport) -> RenderableType:
    ours, theirs = report.semistream, report.spark
    table = Table(title="Left join of orders with products", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("semistream", justify="right")
    table.add_column("Spark's own join", justify="right")
    first = " (the first)" if theirs.batches < ours.batches else ""
    for name, ours_says, theirs_says in (
        ("micro-batches", f"{ours.batches}", f"{theirs.batches}{first}"),
        ("orders", f"{ours.orders:,}", f"{theirs.orders:,}"),
        ("  joined", f"{ours.joined:,}", f"{theirs.joined:,}"),
        ("  unmatched (unknown product)", f"{ours.unmatched:,}", f"{theirs.unmatched:,}"),
        ("equal to DuckDB, row by row", _yes(ours.equals_duckdb), _yes(theirs.equals_duckdb)),
        ("time", f"{ours.seconds:.1f} s", f"{theirs.seconds:.1f} s"),
        ("orders/s", f"{ours.rows_per_s:,}", f"{theirs.rows_per_s:,}"),
        (f"orders/s, {_warm(theirs.batches)}", *(f"{rate:,}" for rate in report.warm_rows_per_s.values())),
        ("pages of R read", f"{report.pages_read:,} in {report.requests:,} requests", "all of R in every batch"),
        ("bytes of R read", format_bytes(report.bytes_read), "-"),
        ("memory budget of the join", f"{format_bytes(report.budget_bytes)} (10% of R)", "none"),
        ("  peak, all workers together", format_bytes(report.peak_bytes), "-"),
    ):
        table.add_row(name, ours_says, theirs_says)
    return Group(
        table,
        f"R: {report.products:,} products, {format_bytes(report.product_bytes)} in {report.pages:,} pages, built in "
        f"{report.build_seconds:.1f} s. Spark: local[{report.cores}], as many shuffle partitions.",
        f"Spark plans its own join by its default settings, with R as a Parquet file: {report.spark_strategy}"
        f"{_NO_BROADCAST if report.spark_strategy == 'SortMergeJoin' else ''}.",
        f"On {_warm(theirs.batches)} semistream is {report.speedup:.1f} times as fast. "
        f"The whole demo took {report.seconds:.0f} s.",
        "",
        facts(*report.files.items()),
    )


def _warm(batches: int) -> str:
    return f"batches 2 to {batches}" if batches > 1 else "batch 1"


def _yes(equal: bool) -> str:
    return "yes" if equal else "NO"
