"""Open Spark sessions for commands, and choose the Python interpreter of their workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from semistream.errors import InvalidArgument
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.spark.sent_kernels import ISOLATION, send_kernels

CLUSTER_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    ISOLATION: "false",  # so that queries and the work between batches share the operators that workers keep in memory
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {
    **CLUSTER_SETTINGS,
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.openCostInBytes": "4096",  # else each small file becomes a task, and cores idle
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",  # else a job lists the files of a large batch
    "spark.ui.enabled": "false",
}


@contextmanager
def local_session(name: str, cores: int | str, *, log: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a Spark session on this machine whose output, and that of its workers, goes to the file ``log``."""
    with quiet_session(name, f"local[{cores}]", log=log, settings={**LOCAL_SETTINGS, **settings}) as session:
        yield session


@contextmanager
def session_for(spec: PipelineSpec, *, master: str, settings: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """Open a Spark session for a pipeline, with `LOCAL_SETTINGS` on this machine or `CLUSTER_SETTINGS` elsewhere."""
    usual = LOCAL_SETTINGS if master.startswith("local") else CLUSTER_SETTINGS
    with quiet_session(f"semistream {spec.name}", master, log=log, settings={**usual, **settings}) as session:
        yield session


@contextmanager
def quiet_session(name: str, master: str, *, log: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a Spark session whose output goes to the file ``log``, and stop it after the block.

    An active session of this process is used instead, unchanged, and stays open.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with _output_to(log):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send stdout and stderr of processes started in the block to ``log``; Spark has no setting for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, copy in enumerate(saved, start=1):
            os.dup2(copy, number)
            os.close(copy)


_PYSPARK_DEFAULT = "python3"  # pyspark's interpreter for workers if PYSPARK_PYTHON is not set


@contextmanager
def worker_interpreter(spark: SparkSession) -> Iterator[None]:
    """Run Python functions passed to Spark within the block on the driver's interpreter, with its compiled kernels.

    By default pyspark starts ``python3``, which in a virtual environment is often another Python without semistream,
    and it reads ``spark.pyspark.python`` only in spark-submit. An explicit choice takes precedence: the variable
    ``PYSPARK_PYTHON``, then the session's setting ``spark.pyspark.python``. This works on a running session, because
    pyspark reads the interpreter's name when it wraps a function. Functions outside of the block are not affected.
    """
    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = choose_interpreter(spark)
    send_kernels(spark)
    try:
        yield
    finally:
        context.pythonExec = before


def choose_interpreter(spark: SparkSession) -> str:
    """Return the path of the interpreter for a session's workers."""
    context = spark.sparkContext
    if os.environ.get("PYSPARK_PYTHON") or context.pythonExec != _PYSPARK_DEFAULT:
        return str(context.pythonExec)
    return spark.conf.get("spark.pyspark.python", None) or sys.executable  # `getConf` would copy all settings: 20 ms


def require_classic(df: Any) -> DataFrame:
    """Return ``df``; raise `InvalidArgument` unless it is a DataFrame of a session whose driver is this process."""
    if not isinstance(df, ClassicDataFrame):
        kind = f"{type(df).__module__}.{type(df).__name__}"
        raise InvalidArgument(
            f"df is a {kind}; give a pyspark DataFrame of a session that runs in this process "
            "(Spark Connect is not supported: the driver must have access to the relation)."
        )
    return df
