"""The demo from its data to its report, step by step, with live progress on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from semistream.budget import format_bytes
from semistream.cli.demo.check import Comparison, compare_with_duckdb
from semistream.cli.demo.data import Workload, order_file
from semistream.cli.demo.folder import DemoFolder
from semistream.cli.demo.plot import save_plot
from semistream.cli.demo.report import DemoReport, QueryReport, orders_per_s
from semistream.cli.output import messages
from semistream.cli.progress import build_progress
from semistream.relation import Relation
from semistream.spark.demo import (
    Batch,
    join_strategy,
    join_with_semistream,
    join_with_spark,
    open_session,
    read_orders,
    read_worker_stats,
    run_query,
)

BUDGET_SHARE = 0.10  # of R's bytes, for all workers together


def run_demo(workload: Workload, folder: DemoFolder, *, cores: int, spark_batches: int) -> DemoReport:
    """Make the data, run both queries, check both results, draw the plot."""
    start = perf_counter()
    say = messages().print
    say(f"1/5  {workload.products:,} products, {workload.orders:,} orders in bursts")
    workload.write_products(folder.products)
    sizes = workload.write_orders(folder.orders)
    files = [folder.orders / order_file(number) for number in range(len(sizes))]

    say("2/5  building the relation")
    begin = perf_counter()
    with build_progress() as progress:
        relation = Relation.build(folder.products, folder.relation, key="id", progress=progress)
    build_seconds = perf_counter() - begin
    worker_bytes = int(relation.nbytes * BUDGET_SHARE) // cores

    say(f"3/5  {len(sizes)} micro-batches through Spark, {format_bytes(worker_bytes)} for each of {cores} workers")
    with open_session(cores, log=folder.log, warehouse=folder.root / "warehouse") as spark:
        ours_df = join_with_semistream(
            read_orders(spark, files), relation, worker_bytes=worker_bytes, metrics=folder.metrics
        )
        ours = _watch("semistream", run_query(ours_df, folder.query("semistream"), log=folder.log), sizes)
        compared = sizes[:spark_batches]
        say(f"4/5  {'the same' if len(compared) == len(sizes) else f'the first {len(compared)}'} with Spark's own join")
        theirs_df = join_with_spark(read_orders(spark, files[: len(compared)]), folder.products)
        strategy = join_strategy(theirs_df)
        theirs = _watch("Spark's own", run_query(theirs_df, folder.query("spark"), log=folder.log), compared)

    say("5/5  comparing both results with DuckDB's, row by row")
    reports = [
        _report(batches, compare_with_duckdb(folder.query(query) / "results", files[: len(batches)], folder.products))
        for query, batches in (("semistream", ours), ("spark", theirs))
    ]
    title = f"{workload.orders:,} orders joined with {workload.products:,} products ({format_bytes(relation.nbytes)})"
    names = (f"semistream, {format_bytes(worker_bytes * cores)} of memory", "Spark's own stream-static join")
    save_plot(folder.plot, dict(zip(names, (ours, theirs), strict=True)), sizes, title=title)

    stats = read_worker_stats(folder.metrics)
    warm = len(theirs) > 1  # leave out the first batch, in which workers start and code is compiled, if there are more
    warm_ours, warm_theirs = (orders_per_s(batches[warm : len(theirs)]) for batches in (ours, theirs))
    return DemoReport(
        products=relation.num_rows,
        product_bytes=relation.nbytes,
        pages=relation.num_pages,
        build_seconds=round(build_seconds, 3),
        cores=cores,
        budget_bytes=worker_bytes * cores,
        peak_bytes=stats.peak_bytes,
        workers=stats.workers,
        pages_read=stats.pages_read,
        requests=stats.requests,
        bytes_read=stats.bytes_read,
        semistream=reports[0],
        spark=reports[1],
        spark_strategy=strategy,
        warm_rows_per_s={"semistream": round(warm_ours), "spark": round(warm_theirs)},
        speedup=round(warm_ours / warm_theirs, 2),
        seconds=round(perf_counter() - start, 1),
        files={
            "plot": str(folder.plot),
            "joined orders": str(folder.query("semistream") / "results"),
            "the same by Spark": str(folder.query("spark") / "results"),
            "relation": str(folder.relation),
            "orders": str(folder.orders),
            "worker metrics": str(folder.metrics),
            "Spark's log": str(folder.log),
        },
    )


def _watch(name: str, query: Iterable[Batch], sizes: Sequence[int]) -> list[Batch]:
    """Run a query and show each micro-batch when it is done."""
    console = messages()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("micro-batches  {task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    batches: list[Batch] = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=len(sizes), rate="starting")
        for batch in query:
            batches.append(batch)
            rate = f"{batch.rows:,} orders at {batch.rows_per_s:,.0f}/s"
            progress.update(task, completed=len(batches), rate=rate)
    return batches


def _report(batches: Sequence[Batch], found: Comparison) -> QueryReport:
    return QueryReport.of(batches, joined=found.joined, unmatched=found.unmatched, equals_duckdb=found.equal)
