"""The ``semistream demo`` command and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semistream.cli.options import DELTA, PLOT, SPARK, AsJson, require_java, require_packages
from semistream.errors import SemistreamError


def demo(
    out: Annotated[Path, typer.Option(help="Output folder; an earlier demo in it is deleted.")] = Path("demo-out"),
    orders: Annotated[int, typer.Option(help="Total number of orders.", min=1)] = 300_000,
    products: Annotated[int, typer.Option(help="Number of products.", min=1)] = 10_000_000,
    mean_batch: Annotated[int, typer.Option(help="Mean number of orders per micro-batch.", min=1)] = 30_000,
    every: Annotated[float, typer.Option(help="Seconds between two files of orders.", min=0)] = 4.0,
    spark_batches: Annotated[
        int, typer.Option(help="Number of micro-batches to run with Spark's own joins, which are slow.", min=2)
    ] = 4,
    cores: Annotated[int, typer.Option(help="Task slots of the local Spark.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Random seed of the orders.", min=0)] = 5,
    as_json: AsJson = False,
) -> None:
    """Run a demo: load bursts of orders into a star schema in Delta, beside Spark's own joins."""
    require_packages("the demo", {**SPARK, **DELTA, **PLOT})
    require_java()
    from semistream.cli.demo.data import DemoWorkload
    from semistream.cli.demo.folder import DemoFolder
    from semistream.cli.demo.run import run_demo
    from semistream.cli.output import show

    workload = DemoWorkload(orders=orders, products=products, mean_batch=mean_batch, every_s=every, seed=seed)
    report = run_demo(workload, DemoFolder.make(out), cores=cores, spark_batches=spark_batches)
    show(report, as_json=as_json)
    if not all(report.equals_duckdb.values()):
        raise SemistreamError("a result differs from DuckDB's. This is a bug in semistream; please report it.")
