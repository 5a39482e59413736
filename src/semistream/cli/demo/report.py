"""Report of the demo, as data for ``--json`` and as a text table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import Report, facts

if TYPE_CHECKING:
    from semistream.spark.demo import Batch


def orders_per_s(batches: Sequence[Batch]) -> float:
    """Compute the mean rate over some batches."""
    return sum(batch.rows for batch in batches) / sum(batch.seconds for batch in batches)


@dataclass(frozen=True)
class QueryReport:
    """One query over ``batches`` micro-batches. ``seconds`` is their total time, including the first.

    ``outcomes`` counts orders by outcome, as far as the query reports them.
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
        """Summarise the batches of a query."""
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
class DemoReport(Report):
    """Result of the demo.

    ``waited`` orders named unknown products; ``joined_late`` of them were joined once these products arrived.
    ``warm_rows_per_s`` and ``speedup`` cover the batches that both queries ran, except the first, in which workers
    start and code is compiled.
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

    def text(self) -> RenderableType:
        ours, theirs = self.semistream, self.spark
        table = Table(title="Orders into a star schema", title_justify="left", title_style="bold")
        table.add_column("")
        table.add_column("semistream", justify="right")
        table.add_column("Spark's own joins", justify="right")
        first = " (the first)" if theirs.batches < ours.batches else ""
        nowhere = "dropped"
        share = self.budget_bytes / self.relation_bytes
        for name, ours_says, theirs_says in (
            ("micro-batches", f"{ours.batches}", f"{theirs.batches}{first}"),
            ("orders", f"{ours.orders:,}", f"{theirs.orders:,}"),
            ("  joined", f"{ours.outcomes['joined']:,}", f"{theirs.outcomes['joined']:,}"),
            ("  unmatched (unknown store)", f"{ours.outcomes['unmatched']:,}", nowhere),
            ("  quarantined (no quantity)", f"{ours.outcomes['invalid']:,}", nowhere),
            ("  waiting for their product", f"{ours.outcomes['waiting']:,}", nowhere),
            ("customers with a surrogate key", f"{self.customers:,}", "none"),
            ("written to", "Delta, exactly once", "Parquet"),
            ("equal to DuckDB, row by row", _yes(ours.equals_duckdb), _yes(theirs.equals_duckdb)),
            ("time", f"{ours.seconds:.1f} s", f"{theirs.seconds:.1f} s"),
            ("orders/s", f"{ours.rows_per_s:,}", f"{theirs.rows_per_s:,}"),
            (f"orders/s, {_warm(theirs.batches)}", *(f"{rate:,}" for rate in self.warm_rows_per_s.values())),
            ("relation bytes read", format_bytes(self.bytes_read), "all, in every batch"),
            ("join memory, all workers", f"{format_bytes(self.budget_bytes)} ({share:.0%} of relations)", "no limit"),
            ("  peak in one worker", format_bytes(self.peak_worker_bytes), "-"),
        ):
            table.add_row(name, ours_says, theirs_says)
        return Group(
            table,
            f"{self.waited:,} orders named products not known yet, and waited. An update of the products arrived, "
            f"and {self.joined_late:,} of them were joined.",
            f"Relations: {self.products:,} products, customers and stores, {format_bytes(self.relation_bytes)}, built "
            f"in {self.build_seconds:.1f} s. Spark: local[{self.cores}], with as many shuffle partitions.",
            f"Spark's own joins read the tables from Parquet files, with default settings: {self.spark_strategy}.",
            f"On {_warm(theirs.batches)}, semistream is {self.speedup:.1f} times as fast, including surrogate keys. "
            f"The whole demo took {self.seconds:.0f} s.",
            "",
            facts(*self.files.items()),
        )


def _warm(batches: int) -> str:
    return f"batches 2 to {batches}" if batches > 1 else "batch 1"


def _yes(equal: bool) -> str:
    return "yes" if equal else "NO"
