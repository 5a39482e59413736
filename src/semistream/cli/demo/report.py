"""Report of the demo, as data for ``--json`` and as a text table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import Report, facts

if TYPE_CHECKING:
    from semistream.spark.demo import Batch


class _Batches:
    """Figures of the batches after the first, which warms up."""

    batches: list[Batch]

    @property
    def steady(self) -> list[Batch]:
        """The batches after the first."""
        return self.batches[1:] or self.batches

    @property
    def seconds(self) -> float:
        """Median seconds of a steady batch."""
        return median(batch.seconds for batch in self.steady)

    @property
    def bytes_moved(self) -> float:
        """Median bytes moved in a steady batch."""
        return median(batch.bytes_moved for batch in self.steady)


@dataclass(frozen=True)
class Kill:
    """The kill: the number of the batch, the time, and the seconds until the pipeline had finished a batch again."""

    batch: int
    at: float
    back_after_s: float


@dataclass(frozen=True)
class PipelineResult(_Batches):
    """Batches of the pipeline. ``waited`` orders named unknown products; ``joined_late`` of them were joined later."""

    batches: list[Batch]
    outcomes: dict[str, int]
    waited: int
    joined_late: int
    peak_bytes: int
    arrived: dict[int, float]
    kill: Kill


@dataclass(frozen=True)
class OwnJoin(_Batches):
    """Batches of Spark's own joins. ``memory_bytes`` is the most that Spark has sampled for joins and sorts."""

    how: str
    strategy: str
    batches: list[Batch]
    arrived: dict[int, float]
    memory_bytes: int | None


@dataclass(frozen=True)
class DemoReport(Report):
    """Result of the demo. ``left`` is Spark's join that keeps all orders, as ours does; ``inner`` drops some."""

    products: int
    relation_bytes: int
    build_s: float
    cores: int
    memory_bytes: int
    every_s: float
    customers: int
    ours: PipelineResult
    left: OwnJoin
    inner: OwnJoin
    equals_duckdb: dict[str, bool]
    seconds: float
    files: dict[str, str]

    @property
    def speedup(self) -> float:
        """Spark's seconds over ours for the steady batches that both have joined, without those after the kill."""
        return self.left.seconds / self._same(self.left)

    @property
    def speedup_inner(self) -> float:
        """The same, over Spark's join that drops orders of unknown products."""
        return self.inner.seconds / self._same(self.inner)

    def _same(self, own: OwnJoin) -> float:
        numbers = {batch.number for batch in own.steady}
        return median(batch.seconds for batch in self.ours.batches if batch.number in numbers)

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "speedup": round(self.speedup, 2), "speedup_inner": round(self.speedup_inner, 2)}

    def text(self) -> RenderableType:
        ours, left, inner = self.ours, self.left, self.inner
        table = Table(title="Orders into a star schema", title_justify="left", title_style="bold")
        table.add_column("")
        for name in ("semistream", "Spark, left join", "Spark, inner join"):
            table.add_column(name, justify="right")
        share = self.memory_bytes / self.relation_bytes
        for row in (
            ("seconds per batch, median", *(f"{each.seconds:.2f}" for each in (ours, left, inner))),
            ("  the first batch, which warms up", *(f"{each.batches[0].seconds:.1f}" for each in (ours, left, inner))),
            ("bytes read and shuffled per batch", *(format_bytes(round(e.bytes_moved)) for e in (ours, left, inner))),
            (
                "memory for the joins, at most",
                _bytes(ours.peak_bytes),
                _bytes(left.memory_bytes),
                _bytes(inner.memory_bytes),
            ),
            ("  its limit", f"{format_bytes(self.memory_bytes)} ({share:.0%})", "none", "none"),
            ("orders in their table after", _lags(ours.steady), _lags(left.steady), "-"),
            ("batches", *(f"{len(each.batches)}" for each in (ours, left, inner))),
            ("orders of unknown products", "wait, joined later", "joined with nulls", "dropped"),
            ("customers with a surrogate key", f"{self.customers:,}", "none", "none"),
            ("written to", "Delta, exactly once", "Parquet", "Parquet"),
            ("equal to DuckDB, row by row", *(_yes(self.equals_duckdb[n]) for n in ("semistream", "left", "inner"))),
        ):
            table.add_row(*row)
        total = sum(ours.outcomes.values())
        return Group(
            table,
            f"{total:,} orders: {ours.outcomes['joined']:,} joined, {ours.outcomes['unmatched']:,} unmatched (unknown "
            f"store), {ours.outcomes['invalid']:,} quarantined, {ours.outcomes['waiting']:,} waiting. {ours.waited:,} "
            f"named unknown products; {ours.joined_late:,} of them were joined when these had arrived.",
            f"Killed in batch {ours.kill.batch + 1} and started again: back after {ours.kill.back_after_s:.0f} s, no "
            "row lost, none twice.",
            f"{self.products:,} products, customers and stores: {format_bytes(self.relation_bytes)}, built in "
            f"{self.build_s:.0f} s. local[{self.cores}], a file of orders every {self.every_s:g} s.",
            f"Spark's plan, with default settings: {left.strategy} (left), {inner.strategy} (inner).",
            f"On the same batches, semistream takes {_times(self.speedup)} the time of Spark's left join, which keeps "
            f"all orders as the pipeline does, and {_times(self.speedup_inner)} that of its inner join, which drops "
            f"some. The whole demo took {self.seconds:.0f} s.",
            "",
            facts(*self.files.items()),
        )


def _times(speedup: float) -> str:
    """Word a ratio of times.

    >>> _times(8.04), _times(0.5)
    ('1/8.0 of', '2.0 times')
    """
    return f"1/{speedup:.1f} of" if speedup >= 1 else f"{1 / speedup:.1f} times"


def _lags(batches: list[Batch]) -> str:
    """Word the median and the longest lag."""
    lags = [batch.lag_s for batch in batches]
    return f"{median(lags):.1f} s, at most {max(lags):.0f} s"


def _bytes(nbytes: int | None) -> str:
    return "-" if nbytes is None else format_bytes(nbytes)


def _yes(equal: bool) -> str:
    return "yes" if equal else "NO"
