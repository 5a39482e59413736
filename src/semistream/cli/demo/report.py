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


def orders_per_s(batches: Sequence[Batch]) -> float:
    """The mean rate over some batches."""
    return sum(batch.rows for batch in batches) / sum(batch.seconds for batch in batches)


@dataclass(frozen=True)
class QueryReport:
    """One query over ``batches`` micro-batches. ``seconds`` is the time of the micro-batches, the first included.

    ``outcomes`` is what became of the orders, as far as the query says so.
    """

    batches: int
    orders: int
    outcomes: dict[str, int]
    seconds: float
    rows_per_s: int
    equals_duckdb: bool
    per_batch: list[dict[str, Any]]

    @classmethod
    def of(cls, batches: Sequence[Batch], outcomes: dict[str, int], *, equals_duckdb: bool) -> QueryReport:
        """Sum up a query's batches."""
        return cls(
            batches=len(batches),
            orders=sum(batch.rows for batch in batches),
            outcomes=outcomes,
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

    ``waited`` orders were for products that were not known; ``joined_late`` of them were joined when these came.
    ``warm_rows_per_s`` and ``speedup`` are of the batches that both queries had, without the first one: in that,
    workers start and code is compiled.
    """

    products: int
    relation_bytes: int
    build_seconds: float
    cores: int
    budget_bytes: int
    peak_worker_bytes: int
    bytes_read: int
    customers: int
    waited: int
    joined_late: int
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
    table = Table(title="Orders to the facts of a star schema", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("semistream", justify="right")
    table.add_column("Spark's own joins", justify="right")
    first = " (the first)" if theirs.batches < ours.batches else ""
    nowhere = "dropped"
    share = report.budget_bytes / report.relation_bytes
    for name, ours_says, theirs_says in (
        ("micro-batches", f"{ours.batches}", f"{theirs.batches}{first}"),
        ("orders", f"{ours.orders:,}", f"{theirs.orders:,}"),
        ("  joined", f"{ours.outcomes['joined']:,}", f"{theirs.outcomes['joined']:,}"),
        ("  unmatched (unknown store)", f"{ours.outcomes['unmatched']:,}", nowhere),
        ("  in the quarantine (no quantity)", f"{ours.outcomes['invalid']:,}", nowhere),
        ("  waiting for their product", f"{ours.outcomes['waiting']:,}", nowhere),
        ("customers with a surrogate key", f"{report.customers:,}", "none"),
        ("goes to", "Delta, exactly once", "Parquet"),
        ("equal to DuckDB, row by row", _yes(ours.equals_duckdb), _yes(theirs.equals_duckdb)),
        ("time", f"{ours.seconds:.1f} s", f"{theirs.seconds:.1f} s"),
        ("orders/s", f"{ours.rows_per_s:,}", f"{theirs.rows_per_s:,}"),
        (f"orders/s, {_warm(theirs.batches)}", *(f"{rate:,}" for rate in report.warm_rows_per_s.values())),
        ("bytes of relations read", format_bytes(report.bytes_read), "all of them in every batch"),
        ("memory of the joins, all workers", f"{format_bytes(report.budget_bytes)} ({share:.0%} of them)", "no limit"),
        ("  peak of a worker", format_bytes(report.peak_worker_bytes), "-"),
    ):
        table.add_row(name, ours_says, theirs_says)
    return Group(
        table,
        f"{report.waited:,} orders were for products that were not known yet. They waited; an update of the products "
        f"came, and {report.joined_late:,} of them were joined.",
        f"Relations: {report.products:,} products, customers and stores, {format_bytes(report.relation_bytes)}, built "
        f"in {report.build_seconds:.1f} s. Spark: local[{report.cores}], as many shuffle partitions.",
        f"Spark plans its own joins by its default settings, with tables as Parquet files: {report.spark_strategy}.",
        f"On {_warm(theirs.batches)} semistream is {report.speedup:.1f} times as fast, surrogate keys and all. "
        f"The whole demo took {report.seconds:.0f} s.",
        "",
        facts(*report.files.items()),
    )


def _warm(batches: int) -> str:
    return f"batches 2 to {batches}" if batches > 1 else "batch 1"


def _yes(equal: bool) -> str:
    return "yes" if equal else "NO"
