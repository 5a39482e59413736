"""The demo from data to report, with live progress on stderr.

All files go to one folder. A marker file identifies it, so that the demo never deletes anyone else's files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from semistream.budget import format_bytes, parse_bytes
from semistream.cli.demo.check import compare_with_duckdb
from semistream.cli.demo.data import DemoWorkload, order_file
from semistream.cli.demo.plot import save_plot
from semistream.cli.demo.report import DemoReport, QueryReport, orders_per_s
from semistream.cli.output import messages
from semistream.cli.progress import build_progress
from semistream.errors import InvalidArgument
from semistream.pipelines.spec.yaml_file import read_spec
from semistream.relation import Relation
from semistream.spark.demo import (
    Batch,
    join_strategy,
    join_with_spark,
    open_session,
    read_orders,
    run_pipeline,
    run_query,
)

if TYPE_CHECKING:
    from semistream.pipelines.batch.batch_report import BatchReport

_MARK = ".semistream-demo"


@dataclass(frozen=True)
class DemoFolder:
    """Folder that holds every file of the demo."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> DemoFolder:
        """Create the folder, or empty it if it holds an earlier demo."""
        if root.exists() and not root.is_dir():
            raise InvalidArgument(f"out is {str(root)!r}, a file; name a folder.")
        mark = root / _MARK
        if root.exists() and not mark.exists() and any(root.iterdir()):
            raise InvalidArgument(f"out is {str(root)!r}, which holds other files than a demo's; name another folder.")
        root.mkdir(parents=True, exist_ok=True)
        mark.touch()
        for path in root.iterdir():
            if path == mark:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return cls(root)

    @property
    def pipeline(self) -> Path:
        """Pipeline file; its paths are relative to this folder."""
        return self.root / "orders.yaml"

    @property
    def data(self) -> Path:
        """Input data: relations for the pipeline, and the same tables as Parquet for Spark's own joins and DuckDB."""
        return self.root / "data"

    @property
    def orders(self) -> Path:
        """Order files, one per micro-batch."""
        return self.data / "orders"

    @property
    def updates(self) -> Path:
        """Folder for updates of the products."""
        return self.data / "product_updates"

    @property
    def log(self) -> Path:
        """Log of everything Spark prints."""
        return self.root / "spark.log"

    @property
    def plot(self) -> Path:
        """Plot of the rates."""
        return self.root / "rates.png"

    @property
    def by_spark(self) -> Path:
        """Results and checkpoint of Spark's own query."""
        return self.root / "by-spark"

    def table(self, name: str) -> Path:
        """Path of a table as a Parquet file."""
        return self.data / f"{name}.parquet"

    def relation(self, name: str) -> Path:
        """Path of the same table as a relation."""
        return self.data / name


KEYS = {"products": "id", "customers": "code", "stores": "id"}


def run_demo(workload: DemoWorkload, folder: DemoFolder, *, cores: int, spark_batches: int) -> DemoReport:
    """Make the data, run the pipeline and Spark's own joins, check both results, draw the plot."""
    start = perf_counter()
    say = messages().print
    say(f"1/6  generating {workload.products:,} products and {workload.orders:,} orders in bursts")
    sizes = _make_data(workload, folder)
    orders = [folder.orders / order_file(number) for number in range(len(sizes))]
    spec = read_spec(folder.pipeline)
    memory_bytes = cores * parse_bytes(spec.memory, of=1)

    say("2/6  building the relations")
    begin = perf_counter()
    relations = [_build(folder, name, key) for name, key in KEYS.items()]
    build_seconds = perf_counter() - begin

    say(f"3/6  running {len(sizes)} micro-batches through the pipeline, {spec.memory} for each of {cores} workers")
    reports: list[BatchReport] = []
    with open_session(cores, log=folder.log, warehouse=folder.root / "spark-warehouse") as spark:
        with _bar("semistream", len(sizes)) as show:

            def done(report: BatchReport) -> None:
                reports.append(report)
                show(report.rows_in, report.rows_per_s)

            ours = run_pipeline(folder.pipeline, spark, done)
            waited = reports[-1].waiting_rows
            say(f"4/6  {waited:,} orders wait for their product; updating the products")
            workload.write_late_products(folder.updates / "late.parquet")
            first = len(reports)
            run_pipeline(folder.pipeline, spark, done)
        compared = min(spark_batches, len(sizes))
        say(f"5/6  running {'the same' if compared == len(sizes) else f'the first {compared}'} with Spark's own joins")
        theirs_df = join_with_spark(read_orders(spark, orders[:compared]), folder.data)
        strategy = join_strategy(theirs_df)
        theirs: list[Batch] = []
        with _bar("Spark's own", compared) as show:
            for batch in run_query(theirs_df, folder.by_spark, log=folder.log):
                theirs.append(batch)
                show(batch.rows, batch.rows_per_s)

    say("6/6  comparing both results with DuckDB's, row by row")
    keys = Relation.open(folder.relation("customer_keys")).num_rows
    found = compare_with_duckdb(
        [Path(uri) for uri in DeltaTable(str(spec.sink.path)).file_uris()],
        orders,
        [folder.table("products"), folder.updates / "late.parquet"],
        folder.data,
        keys=keys,
    )
    outcomes = _outcomes(reports)
    results = sorted((folder.by_spark / "results").glob("*.parquet"))
    by_spark = compare_with_duckdb(results, orders[: len(theirs)], [folder.table("products")], folder.data)
    title = f"{workload.orders:,} orders with {workload.products:,} products, customers and stores"
    names = (f"semistream, {format_bytes(memory_bytes)} of memory, to Delta", "Spark's own stream-static joins")
    save_plot(folder.plot, dict(zip(names, (ours, theirs), strict=True)), sizes, title=title)

    warm = (
        len(theirs) > 1
    )  # skip the first batch, in which workers start and code is compiled, unless it is the only one
    warm_ours, warm_theirs = (orders_per_s(batches[warm : len(theirs)]) for batches in (ours, theirs))
    return DemoReport(
        products=workload.products,
        relation_bytes=sum(relation.nbytes for relation in relations),
        build_seconds=round(build_seconds, 3),
        cores=cores,
        budget_bytes=memory_bytes,
        peak_worker_bytes=max(report.memory_bytes for report in reports),
        bytes_read=sum(report.bytes_read for report in reports),
        customers=keys,
        waited=waited,
        joined_late=sum(report.outcomes["joined"] for report in reports[first:]),
        semistream=QueryReport.of(ours, outcomes, equals_duckdb=found.equal and found.outcomes == outcomes),
        spark=QueryReport.of(theirs, {"joined": by_spark.rows}, equals_duckdb=by_spark.equal),
        spark_strategy=strategy,
        warm_rows_per_s={"semistream": round(warm_ours), "spark": round(warm_theirs)},
        speedup=round(warm_ours / warm_theirs, 2),
        seconds=round(perf_counter() - start, 1),
        files={
            "plot": str(folder.plot),
            "the pipeline": str(folder.pipeline),
            "the warehouse (Delta)": str(folder.root / "warehouse"),
            "metrics, a line per batch": str(folder.root / "checkpoint" / "metrics.jsonl"),
            "the same by Spark": str(folder.by_spark / "results"),
            "Spark's log": str(folder.log),
        },
    )


def _make_data(workload: DemoWorkload, folder: DemoFolder) -> list[int]:
    """Write the input files and the pipeline file, and return the number of orders in each micro-batch."""
    folder.updates.mkdir(parents=True)
    workload.write_products(folder.table("products"))
    workload.write_customers(folder.table("customers"))
    workload.write_stores(folder.table("stores"))
    folder.pipeline.write_text(files("semistream.cli.demo").joinpath("orders.yaml").read_text())
    return workload.write_orders(folder.orders)


def _build(folder: DemoFolder, name: str, key: str) -> Relation:
    with build_progress() as progress:
        return Relation.build(folder.table(name), folder.relation(name), key=key, progress=progress)


def _outcomes(reports: list[BatchReport]) -> dict[str, int]:
    """Count all orders by outcome; an order that waited counts with its outcome in a later batch."""
    ended = ("invalid", "unmatched", "joined")
    total = {outcome: sum(report.outcomes[outcome] for report in reports) for outcome in ended}
    return {**total, "waiting": reports[-1].waiting_rows}


@contextmanager
def _bar(name: str, batches: int) -> Iterator[Callable[[int, float], None]]:
    """Show a bar and yield a callback to call after each micro-batch."""
    console = messages()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("micro-batches  {task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=batches, rate="starting")

        def show(rows: int, rows_per_s: float) -> None:
            progress.update(task, advance=1, rate=f"{rows:,} orders at {rows_per_s:,.0f}/s")

        yield show
