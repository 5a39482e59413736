"""The demo from data to report, with live progress on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from importlib.resources import files
from pathlib import Path
from time import perf_counter, time
from typing import Any

from deltalake import DeltaTable

from semistream.budget import parse_bytes
from semistream.cli.demo.arriving_files import Arrivals
from semistream.cli.demo.check import compare_with_duckdb
from semistream.cli.demo.data import DemoWorkload, order_file
from semistream.cli.demo.folder import DemoFolder
from semistream.cli.demo.live import LiveBatches
from semistream.cli.demo.pipeline_process import PipelineProcess
from semistream.cli.demo.plot import save_plot
from semistream.cli.demo.report import DemoReport, Kill, OwnJoin, PipelineResult
from semistream.cli.output import messages
from semistream.cli.progress import build_progress
from semistream.pipelines.spec.yaml_file import read_spec
from semistream.relation import Relation
from semistream.spark.demo import (
    OwnQuery,
    execution_bytes,
    join_strategy,
    join_with_spark,
    open_session,
    read_orders,
)

KEYS = {"products": "id", "customers": "code", "stores": "id"}
_KILLED_AFTER = 3  # batches
_INNER_BATCHES = 3


def run_demo(workload: DemoWorkload, folder: DemoFolder, *, cores: int, spark_batches: int) -> DemoReport:
    """Make the data, run the pipeline and Spark's own joins, check all results, draw the picture."""
    start = perf_counter()
    say = messages().print
    say(f"1/5  generating {workload.products:,} products, and {workload.orders:,} orders in bursts")
    sizes = _make_data(workload, folder)
    orders = [folder.made / order_file(number) for number in range(len(sizes))]
    say("2/5  building the relations")
    begin = perf_counter()
    relations = [_build(folder, name, key) for name, key in KEYS.items()]
    build_s = perf_counter() - begin
    ours = _run_pipeline(workload, folder, orders, cores)
    compared = min(spark_batches, len(sizes))
    say(f"4/5  Spark's own joins, on the first {compared} of these files")
    with open_session(cores, log=folder.log, warehouse=folder.root / "spark-warehouse") as spark:
        left = _run_own(spark, folder, orders[:compared], workload.every_s, "left")
        inner = _run_own(spark, folder, orders[: min(compared, _INNER_BATCHES)], 0.0, "inner")
    say("5/5  comparing all results with DuckDB's, row by row")
    keys = Relation.open(folder.relation("customer_keys")).num_rows
    late = [folder.table("products"), folder.updates / "late.parquet"]
    written = [Path(uri) for uri in DeltaTable(str(folder.root / "warehouse" / "orders")).file_uris()]
    found = compare_with_duckdb(written, orders, late, folder.data, "inner", keys=keys)
    equal = {"semistream": found.equal and found.outcomes == ours.outcomes}
    for name, own in (("left", left), ("inner", inner)):
        results = sorted((folder.by_spark / name / "results").glob("*.parquet"))
        own_orders = orders[: len(own.batches)]
        equal[name] = compare_with_duckdb(results, own_orders, late[:1], folder.data, name).equal
    report = DemoReport(
        products=workload.products,
        relation_bytes=sum(relation.nbytes for relation in relations),
        build_s=round(build_s, 1),
        cores=cores,
        memory_bytes=cores * parse_bytes(read_spec(folder.pipeline).memory, of=1),
        every_s=workload.every_s,
        customers=keys,
        ours=ours,
        left=left,
        inner=inner,
        equals_duckdb=equal,
        seconds=round(perf_counter() - start, 1),
        files={
            "picture": str(folder.plot),
            "the pipeline": str(folder.pipeline),
            "the warehouse (Delta)": str(folder.root / "warehouse"),
            "metrics, a line per batch": str(folder.checkpoint / "metrics.jsonl"),
            "the same by Spark": str(folder.by_spark),
            "Spark's log": str(folder.log),
        },
    )
    save_plot(folder.plot, report)
    return report


def _run_pipeline(workload: DemoWorkload, folder: DemoFolder, orders: Sequence[Path], cores: int) -> PipelineResult:
    """Run the pipeline on orders that arrive; kill it once on the way, and let products arrive late."""
    say = messages().print
    say(f"3/5  the pipeline; a file of orders arrives every {workload.every_s:g} s")
    arrivals, process = Arrivals(orders, folder.orders, workload.every_s), PipelineProcess(folder, cores)
    live = LiveBatches("semistream", len(orders))
    with closing(process), closing(arrivals):
        show = partial(_show, live, process)
        process.start()
        process.wait_until(lambda: process.is_listening, show)
        arrivals.put(0)
        process.wait_until(lambda: len(process.reports()) > 0, show)  # the first batch warms up
        arrivals.start(1)
        kill_after = min(_KILLED_AFTER, len(orders) - 1)
        process.wait_until(lambda: len(process.reports()) >= kill_after and process.is_in_a_batch, show)
        begun, killed_at = perf_counter(), time()
        process.kill()
        live.say(f"killed in batch {len(process.reports())}, without any clean-up, and started again")
        process.start()
        batches = len(process.reports())
        process.wait_until(lambda: len(process.reports()) > batches, show)
        kill = Kill(batches, killed_at, round(perf_counter() - begun, 1))
        process.wait_until(lambda: len(process.batches()) == len(orders), show)
        waited = process.reports()[-1]["waiting_rows"]
        live.say(f"{waited:,} orders wait for their product; the products arrive now")
        hidden = folder.updates / "_late.parquet"
        workload.write_late_products(hidden)
        hidden.rename(folder.updates / "late.parquet")
        reported = len(process.reports())
        process.wait_until(lambda: len(process.reports()) > reported, show)
        process.stop()
    reports = process.reports()
    ended = ("invalid", "unmatched", "joined")
    outcomes = {outcome: sum(report[outcome] for report in reports) for outcome in ended}
    return PipelineResult(
        batches=process.batches(),
        outcomes={**outcomes, "waiting": reports[-1]["waiting_rows"]},
        waited=waited,
        joined_late=sum(report["joined"] for report in reports[reported:]),
        peak_bytes=cores * max(report["memory_bytes"] for report in reports),
        arrived={number: arrivals.at[file.name] for number, file in enumerate(orders)},
        kill=kill,
    )


def _show(live: LiveBatches, process: PipelineProcess) -> None:
    live.show(process.batches())


def _run_own(spark: Any, folder: DemoFolder, orders: Sequence[Path], every_s: float, how: str) -> OwnJoin:
    """Run Spark's own joins on the orders; the first batch warms up, and then the others arrive."""
    own = folder.by_spark / how
    arrivals = Arrivals(orders, own / "orders", every_s)
    df = join_with_spark(read_orders(spark, own / "orders", like=orders[0]), folder.data, how)
    strategy = join_strategy(df)
    arrivals.put(0)
    table_bytes = sum(folder.table(name).stat().st_size for name in KEYS)
    query = OwnQuery(df, own, arrivals.at, table_bytes=table_bytes, log=folder.log)
    live = LiveBatches(f"Spark, {how}", len(orders))
    with closing(arrivals):

        def show() -> None:
            live.show(query.batches())

        query.wait_for(1, show)
        arrivals.start(1)
        batches = query.wait_for(len(orders), show)
        query.stop()
    arrived = {number: arrivals.at[file.name] for number, file in enumerate(orders)}
    return OwnJoin(how, strategy, batches, arrived, execution_bytes(spark))


def _make_data(workload: DemoWorkload, folder: DemoFolder) -> list[int]:
    """Write the input files and the pipeline file, and return the number of orders in each micro-batch."""
    for arriving in (folder.updates, folder.orders):
        arriving.mkdir(parents=True)
    workload.write_products(folder.table("products"))
    workload.write_customers(folder.table("customers"))
    workload.write_stores(folder.table("stores"))
    folder.pipeline.write_text(files("semistream.cli.demo").joinpath("orders.yaml").read_text())
    return workload.write_orders(folder.made)


def _build(folder: DemoFolder, name: str, key: str) -> Relation:
    with build_progress() as progress:
        return Relation.build(folder.table(name), folder.relation(name), key=key, progress=progress)
